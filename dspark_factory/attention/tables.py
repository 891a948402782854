"""Index tables of a step, built once and shared by all layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from dspark_factory.api import KeyLists
from dspark_factory.attention.entries import EntryTables, entry_tables
from dspark_factory.attention.key_lists import ListJoin, compact, join_of
from dspark_factory.attention.rope import rotations
from dspark_factory.attention.rows import (
    StepRows,
    draft_block_indices,
    kept_ring_rows,
    ring_rows,
    window_indices,
)
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.graph_keys import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequencies:
    """Angular frequencies of both rotary embeddings, ``[rope_head_dim / 2]`` fp32."""

    main: Tensor
    compress: Tensor


class Turn:
    """Rotation of a set of positions, and its inverse, made when it is first asked for."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make

    @cached_property
    def forward(self) -> Tensor:
        """``[..., rope_head_dim / 2]`` complex64."""
        return self._make()

    @cached_property
    def inverse(self) -> Tensor:
        """Its conjugate."""
        return self.forward.conj().resolve_conj()


def turns_by_layer_type(main: Turn, compress: Turn) -> dict[LayerType, Turn]:
    """Which rotation each layer type uses."""
    return {LayerType.SLIDING: main, LayerType.CSA: compress, LayerType.HCA: compress}


IN_FLIGHT_MODES = (Mode.EXTEND, Mode.DRAFT_BLOCK)
"""Modes whose rows attend from the in-flight region: chunks longer than a ring, and blocks never kept."""


@dataclass(frozen=True, kw_only=True)
class StepTables:
    """All tables of a step; what fused kernels do not read is built when it is first asked for.

    Attributes:
        rows: the step's rows.
        dims: geometry.
        turns: rotation of the rows in each layer type.
        page_table: ``[slots, pages per request]`` int32, of models that compress.
        sliding: key lists of the sliding-window layers.
        kv_write_rows: ``[rows]`` int64 pool row that each row's KV is written to.
        kv_keep_rows: ``[rows]`` int64 pool row that it is kept in afterwards, where that is another.
        csa: entries of the sparse layers, where they are present.
        hca: entries of the heavily compressed layers, where they are present.
        dense_rows: ``[requests, width]`` int64 row of each offset of a request.
        offsets: ``[rows]`` int64 offset of each row in its request.
        all_entries: key lists of the heavily compressed layers, where a kernel wrote them.
    """

    rows: StepRows
    dims: Dims
    turns: dict[LayerType, Turn]
    page_table: Tensor | None
    sliding: KeyLists
    kv_write_rows: Tensor
    kv_keep_rows: Tensor | None
    csa: EntryTables | None
    hca: EntryTables | None
    dense_rows: Tensor
    offsets: Tensor
    all_entries: KeyLists | None = None

    def entries(self, layer_type: LayerType) -> EntryTables:
        """Tables of a compressing layer type."""
        tables = self.csa if layer_type is LayerType.CSA else self.hca
        assert tables is not None, "tables are built for the layer types present"
        return tables

    @cached_property
    def window(self) -> Tensor:
        """``[rows, window]`` pool rows of each row's window, with holes of −1 at the front."""
        return _window(self.rows, self.dims)

    @cached_property
    def sparse_join(self) -> ListJoin:
        """How a sparse layer's window and its selected entries become one list."""
        return self._join(LayerType.CSA)

    @cached_property
    def heavily_compressed(self) -> KeyLists:
        """Window and every completed entry of the heavily compressed layers."""
        if self.all_entries is not None:
            return self.all_entries
        pool_rows = self.entries(LayerType.HCA).pool_rows
        return self._join(LayerType.HCA).join(self.window, pool_rows[self.rows.request])

    def _join(self, layer_type: LayerType) -> ListJoin:
        return join_of(self.window, self.entries(layer_type).lens, self.dims.listed_entries(layer_type))


def build_tables(
    rows: StepRows, dims: Dims, frequencies: Frequencies, page_table: Tensor | None
) -> StepTables:
    """Tables of a step from its rows. Pure device work; shapes follow from ``rows.key`` and ``dims`` alone."""
    mode, ring = rows.key.mode, dims.window_ring_rows
    in_flight = mode in IN_FLIGHT_MODES
    own = dims.ring_region_rows + torch.arange(rows.key.rows, device=rows.slot.device)

    def entries(layer_type: LayerType) -> EntryTables | None:
        if mode is Mode.DRAFT_BLOCK or not dims.count(layer_type):
            return None
        assert page_table is not None, "compressing layers have a page table"
        return entry_tables(rows, dims, layer_type, frequencies.compress, page_table)

    return StepTables(
        rows=rows,
        dims=dims,
        turns=turns_by_layer_type(
            Turn(partial(rotations, rows.position, frequencies.main)),
            Turn(partial(rotations, rows.position, frequencies.compress)),
        ),
        page_table=page_table,
        sliding=compact(_window(rows, dims)),
        kv_write_rows=own if in_flight else ring_rows(rows, ring),
        kv_keep_rows=kept_ring_rows(rows, ring, dims) if mode is Mode.EXTEND else None,
        csa=entries(LayerType.CSA),
        hca=entries(LayerType.HCA),
        dense_rows=rows.dense_rows(),
        offsets=rows.offsets(),
    )


def _window(rows: StepRows, dims: Dims) -> Tensor:
    if rows.key.mode is Mode.DRAFT_BLOCK:
        return draft_block_indices(rows, dims)
    return window_indices(rows, dims, in_flight=rows.key.mode in IN_FLIGHT_MODES)
