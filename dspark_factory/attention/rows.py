"""Requests become rows: the one place where the modes differ.

A row is a (request slot, position). Everything that attention needs (causal lengths, window rows, completed
groups, write locations) follows from rows by pure tensor functions, so uniform and ragged layouts agree by
construction. Nothing here reads a tensor's value on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import GraphKey, LayoutForm


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """Row tables of one step; all int64 on the device unless noted.

    Attributes:
        key: shapes of the step.
        request: ``[rows]`` index of the row's request in the batch.
        slot: ``[rows]`` request slot; the scratch slot for padding rows.
        position: ``[rows]`` position in the sequence; 0 for padding rows.
        valid: ``[rows]`` bool, false for padding rows.
        request_slots: ``[requests]``.
        starts: ``[requests]`` first position of the step.
        ends: ``[requests]`` one past its last position.
        first_row: ``[requests]`` row of the first position.
    """

    key: GraphKey
    request: Tensor
    slot: Tensor
    position: Tensor
    valid: Tensor
    request_slots: Tensor
    starts: Tensor
    ends: Tensor
    first_row: Tensor

    @property
    def row_lens(self) -> Tensor:
        """``[requests]`` rows that count."""
        return self.ends - self.starts

    def dense_rows(self) -> Tensor:
        """``[requests, width]`` row of each (request, offset); offsets past the request repeat its last row."""
        offsets = torch.arange(self.key.width, device=self.slot.device)
        last = (self.row_lens - 1).clamp(min=0).unsqueeze(1)
        rows = self.first_row.unsqueeze(1) + torch.minimum(offsets, last)
        return rows.clamp(max=max(self.key.rows - 1, 0))

    def offsets(self) -> Tensor:
        """``[rows]`` offset of the row within its request, below ``width``."""
        rows = torch.arange(self.key.rows, device=self.slot.device)
        return (rows - self.first_row[self.request]).clamp(0, self.key.width - 1)


def expand_rows(
    key: GraphKey,
    dims: Dims,
    *,
    request_slots: Tensor,
    prefix_lens: Tensor,
    row_lens: Tensor | None = None,
    start_loc: Tensor | None = None,
) -> StepRows:
    """Row tables from per-request inputs.

    Args:
        key: shapes; uniform rows lie ``width`` apart, ragged rows back to back.
        dims: for the scratch slot.
        request_slots: ``[requests]`` int32.
        prefix_lens: ``[requests]`` int32 tokens already committed.
        row_lens: ``[requests]`` int32 rows that count; all of them when ``None``.
        start_loc: ``[requests]`` int32 first row of each request; needed for ragged layouts only.
    """
    rows = torch.arange(key.rows, device=request_slots.device)
    slots, starts = request_slots.long(), prefix_lens.long()
    lens = torch.full_like(starts, key.width) if row_lens is None else row_lens.long()
    if key.form is LayoutForm.RAGGED:
        assert start_loc is not None, "a ragged layout needs start_loc"
        first_row = start_loc.long()
        # Requests without rows share their start with a later one; the last of them owns the row.
        request = torch.searchsorted(first_row, rows, right=True) - 1
        request = request.clamp(min=0)
    else:
        first_row = torch.arange(key.requests, device=rows.device) * key.width
        request = torch.div(rows, key.width, rounding_mode="floor")
    offset = rows - first_row[request]
    valid = offset < lens[request]
    return StepRows(
        key=key,
        request=request,
        slot=torch.where(valid, slots[request], dims.scratch_slot),
        position=torch.where(valid, starts[request] + offset, 0),
        valid=valid,
        request_slots=slots,
        starts=starts,
        ends=starts + lens,
        first_row=first_row,
    )


def ring_rows(rows: StepRows, ring: int) -> Tensor:
    """``[rows]`` place of each row in its slot's ring of ``ring`` rows."""
    return rows.slot * ring + rows.position % ring


def kept_ring_rows(rows: StepRows, ring: int, dims: Dims) -> Tensor:
    """Like :func:`ring_rows`, with the scratch slot for rows that a later row of the step overwrites.

    A chunk may be longer than the ring; without this the order of duplicate writes would decide.
    """
    newest = rows.position >= rows.ends[rows.request] - ring
    return torch.where(newest, ring_rows(rows, ring), dims.scratch_slot * ring)


def window_indices(rows: StepRows, dims: Dims, *, in_flight: bool) -> Tensor:
    """``[rows, window]`` pool rows of the sliding window, the row itself included; −1 before the sequence.

    Args:
        rows: row tables.
        dims: geometry.
        in_flight: whether the step's own rows are read from the in-flight region, because they are not in the
            ring yet.
    """
    ring = dims.window_ring_rows
    back = torch.arange(dims.sliding_window - 1, -1, -1, device=rows.slot.device)
    seen = rows.position.unsqueeze(1) - back
    indices = rows.slot.unsqueeze(1) * ring + seen % ring
    if in_flight:
        start = torch.where(rows.valid, rows.starts[rows.request], 0).unsqueeze(1)
        own = torch.where(
            rows.valid, rows.first_row[rows.request], torch.arange(rows.key.rows, device=rows.slot.device)
        )
        current = dims.ring_region_rows + own.unsqueeze(1) + seen - start
        indices = torch.where(seen >= start, current, indices)
    return torch.where(seen >= 0, indices, -1)


def draft_block_indices(rows: StepRows, dims: Dims) -> Tensor:
    """``[rows, window + width]`` pool rows of a draft block: its context window, then the whole block.

    Every row of a block sees the last window of positions strictly before the block, from the ring, and all rows
    of its own block, later ones included, from the in-flight region.
    """
    device = rows.slot.device
    ring = dims.window_ring_rows
    start = rows.starts[rows.request].unsqueeze(1)
    seen = start - torch.arange(dims.sliding_window, 0, -1, device=device)
    context = torch.where(
        (seen >= 0) & rows.valid.unsqueeze(1), rows.slot.unsqueeze(1) * ring + seen % ring, -1
    )
    offsets = torch.arange(rows.key.width, device=device)
    inside = (offsets < rows.row_lens[rows.request].unsqueeze(1)) & rows.valid.unsqueeze(1)
    block = dims.ring_region_rows + rows.first_row[rows.request].unsqueeze(1) + offsets
    return torch.cat([context, torch.where(inside, block, -1)], dim=1)
