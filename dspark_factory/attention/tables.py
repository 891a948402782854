"""Index tables of a step, built once and shared by all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_factory.api import KeyLists
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Rotation of a set of positions, and its inverse."""

    forward: Tensor
    inverse: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryTables:
    """Tables of one compressing layer type. ``groups`` is the most groups a request can complete in a step.

    Attributes:
        taps_from_step: ``[requests, groups, taps]`` bool, whether a tap is one of the step's own rows.
        step_rows: same shape, row of the tap where it is.
        state_rows: same shape, row of the flat state rings where it is not.
        taps_missing: same shape bool, taps before the sequence.
        state_write_rows: ``[rows]`` row of the flat state rings that each row is kept in.
        pool_write_rows: ``[requests * groups]`` pool row of each group; the scratch page for incomplete ones.
        index_write_rows: the same in the indexer's key pool.
        turn: rotation at each group's first position, ``[requests, groups, rope_head_dim / 2]``.
        pool_rows: ``[requests, entries]`` pool row of every entry that a request may have.
        index_rows: the same in the indexer's key pool.
        counts: ``[rows]`` completed groups that a row sees.
        join: how window and entries become one list.
    """

    taps_from_step: Tensor
    step_rows: Tensor
    state_rows: Tensor
    taps_missing: Tensor
    state_write_rows: Tensor
    pool_write_rows: Tensor
    index_write_rows: Tensor
    turn: Tensor
    pool_rows: Tensor
    index_rows: Tensor
    counts: Tensor
    join: ListJoin


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTables:
    """All tables of a step; ``window [rows, window]`` has holes of −1 at the front, ``sliding`` has none."""

    rows: StepRows
    window: Tensor
    sliding: KeyLists
    heavily_compressed: KeyLists | None
    kv_write_rows: Tensor
    kv_keep_rows: Tensor | None
    main: Turn
    compress: Turn | None
    csa: EntryTables | None
    hca: EntryTables | None
    dense_rows: Tensor
    offsets: Tensor

    def entries(self, layer_type: LayerType) -> EntryTables:
        """Tables of a compressing layer type."""
        tables = self.csa if layer_type is LayerType.CSA else self.hca
        assert tables is not None, "tables are built for the layer types present"
        return tables


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
        heavily_compressed=None if hca is None else hca.join.join(window, hca.pool_rows[rows.request]),
        kv_write_rows=own if in_flight else ring_rows(rows, ring),
        kv_keep_rows=kept_ring_rows(rows, ring, dims) if mode is Mode.EXTEND else None,
        main=_turn(rows.position, frequencies.main),
        compress=_turn(rows.position, frequencies.compress) if compressing else None,
        csa=csa,
        hca=hca,
        dense_rows=rows.dense_rows(),
        offsets=rows.offsets(),
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
    ratio, device = dims.ratio(layer_type), rows.slot.device
    groups = -(-rows.key.width // ratio)
    entry = torch.div(rows.starts, ratio, rounding_mode="floor").unsqueeze(1)
    entry = entry + torch.arange(groups, device=device)
    complete = (entry + 1) * ratio <= rows.ends.unsqueeze(1)
    overlap = ratio if layer_type is LayerType.CSA else 0
    tap = (entry * ratio - overlap).unsqueeze(-1) + torch.arange(ratio + overlap, device=device)
    start = rows.starts.view(-1, 1, 1)
    state_ring = dims.state_ring_rows(layer_type)
    step_rows = rows.first_row.view(-1, 1, 1) + tap - start
    pages = page_table[rows.request_slots].long()
    per_page = dims.entries_per_page(layer_type)
    written = _entry_rows(pages, torch.where(complete, entry, 0), per_page)
    written = torch.where(complete, written, dims.scratch_page * per_page).flatten()
    readable = _entry_rows(
        pages,
        torch.arange(dims.max_entries(layer_type), device=device).expand(rows.key.requests, -1),
        per_page,
    )
    counts = torch.where(rows.valid, torch.div(rows.position + 1, ratio, rounding_mode="floor"), 0)
    listed = dims.selected_entries if layer_type is LayerType.CSA else dims.max_entries(layer_type)
    return EntryTables(
        taps_from_step=tap >= start,
        step_rows=step_rows.clamp(0, max(rows.key.rows - 1, 0)),
        state_rows=rows.request_slots.view(-1, 1, 1) * state_ring + tap % state_ring,
        taps_missing=tap < 0,
        state_write_rows=kept_ring_rows(rows, state_ring, dims),
        pool_write_rows=dims.entry_region_start + written,
        index_write_rows=written,
        turn=rotations(entry * ratio, frequencies.compress),
        pool_rows=dims.entry_region_start + readable,
        index_rows=readable,
        counts=counts,
        join=join_of(window, counts, listed),
    )


def _entry_rows(pages: Tensor, entry: Tensor, per_page: int) -> Tensor:
    """Row of each entry among the pages: ``[requests, n]`` for entries ``[requests, n]``."""
    index = torch.div(entry, per_page, rounding_mode="floor").clamp(max=pages.shape[1] - 1)
    return pages.gather(1, index) * per_page + entry % per_page
