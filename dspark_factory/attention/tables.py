"""Index tables of a step, built once and shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dspark_factory.api import KeyLists
from dspark_factory.attention.entries import EntryTables, entry_tables
from dspark_factory.attention.key_lists import compact
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Rotation of a set of positions, and its inverse."""

    forward: Tensor
    inverse: Tensor


@dataclass(frozen=True, kw_only=True)
class StepTables:
    """All tables of a step; ``window [rows, window]`` has holes of −1 at the front, ``sliding`` has none."""

    rows: StepRows
    window: Tensor
    sliding: KeyLists
    kv_write_rows: Tensor
    kv_keep_rows: Tensor | None
    main: Turn
    compress: Turn | None
    csa: EntryTables | None
    hca: EntryTables | None
    dense_rows: Tensor
    offsets: Tensor
    page_table: Tensor | None

    def entries(self, layer_type: LayerType) -> EntryTables:
        """Tables of a compressing layer type."""
        tables = self.csa if layer_type is LayerType.CSA else self.hca
        assert tables is not None, "tables are built for the layer types present"
        return tables

    @cached_property
    def heavily_compressed(self) -> KeyLists:
        """Window and every completed entry of the heavily compressed layers."""
        entries = self.entries(LayerType.HCA)
        return entries.join.join(self.window, entries.pool_rows[self.rows.request])


IN_FLIGHT_MODES = (Mode.EXTEND, Mode.DRAFT_BLOCK)
"""Modes whose rows attend from the in-flight region: chunks longer than a ring, and blocks never kept."""


def build_tables(
    rows: StepRows, dims: Dims, frequencies: Frequencies, page_table: Tensor | None
) -> StepTables:
    """Tables of a step from its rows. Pure device work; shapes follow from ``rows.key`` and ``dims`` alone."""
    mode, ring = rows.key.mode, dims.window_ring_rows
    in_flight = mode in IN_FLIGHT_MODES
    device = rows.slot.device
    if mode is Mode.DRAFT_BLOCK:
        window = draft_block_indices(rows, dims)
    else:
        window = window_indices(rows, dims, in_flight=in_flight)
    own = dims.ring_region_rows + torch.arange(rows.key.rows, device=device)
    compressing = dims.has_compressed_layers and mode is not Mode.DRAFT_BLOCK
    csa = _entries(rows, dims, LayerType.CSA, frequencies, page_table, window) if compressing else None
    hca = _entries(rows, dims, LayerType.HCA, frequencies, page_table, window) if compressing else None
    return StepTables(
        rows=rows,
        window=window,
        sliding=compact(window),
        kv_write_rows=own if in_flight else ring_rows(rows, ring),
        kv_keep_rows=kept_ring_rows(rows, ring, dims) if mode is Mode.EXTEND else None,
        main=_turn(rows.position, frequencies.main),
        compress=_turn(rows.position, frequencies.compress) if compressing else None,
        csa=csa,
        hca=hca,
        dense_rows=rows.dense_rows(),
        offsets=rows.offsets(),
        page_table=page_table,
    )


def _turn(positions: Tensor, frequencies: Tensor) -> Turn:
    forward = rotations(positions, frequencies)
    return Turn(forward=forward, inverse=forward.conj().resolve_conj())


def _entries(
    rows: StepRows,
    dims: Dims,
    layer_type: LayerType,
    frequencies: Frequencies,
    page_table: Tensor | None,
    window: Tensor,
) -> EntryTables | None:
    if not dims.count(layer_type):
        return None
    assert page_table is not None, "compressing layers have a page table"
    return entry_tables(rows, dims, layer_type, frequencies.compress, page_table, window)
