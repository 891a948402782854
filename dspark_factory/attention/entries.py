"""Tables of compressed entries: which a step completes, where they are kept, and who sees them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dspark_factory.attention.rope import rotations
from dspark_factory.attention.rows import StepRows, kept_ring_rows
from dspark_factory.planning.dims import Dims, LayerType


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Where each group's tokens come from, all ``[requests, groups, taps]``.

    Attributes:
        from_step: bool, whether a tap is one of the step's own rows.
        step_rows: row of the tap where it is.
        state_rows: row of the flat state rings where it is not.
        missing: bool, taps before the sequence.
    """

    from_step: Tensor
    step_rows: Tensor
    state_rows: Tensor
    missing: Tensor


@dataclass(frozen=True, kw_only=True)
class EntryTables:
    """Tables of one compressing layer type. ``groups`` is the most groups a request can complete in a step.

    What fused kernels find out for themselves is built when it is first asked for.

    Attributes:
        rows: the step's rows.
        dims: geometry.
        layer_type: which entries.
        frequencies: ``[rope_head_dim / 2]`` of the compressing layers.
        page_table: ``[slots, pages per request]`` int32.
        counts: ``[rows]`` int64 completed groups that a row sees.
        lens: ``[rows]`` int32 length of a row's key list, the same tensor for every layer of the type.
    """

    rows: StepRows
    dims: Dims
    layer_type: LayerType
    frequencies: Tensor
    page_table: Tensor
    counts: Tensor
    lens: Tensor

    @property
    def groups(self) -> int:
        """Most groups that a request can complete in the step."""
        return -(-self.rows.key.width // self.dims.ratio(self.layer_type))

    @cached_property
    def entry(self) -> Tensor:
        """``[requests, groups]`` entry that each group becomes."""
        first = torch.div(self.rows.starts, self.dims.ratio(self.layer_type), rounding_mode="floor")
        return first.unsqueeze(1) + torch.arange(self.groups, device=first.device)

    @cached_property
    def complete(self) -> Tensor:
        """``[requests, groups]`` bool, whether the step completes it."""
        return (self.entry + 1) * self.dims.ratio(self.layer_type) <= self.rows.ends.unsqueeze(1)

    @cached_property
    def turn(self) -> Tensor:
        """Rotation at each group's first position, ``[requests, groups, rope_head_dim / 2]``."""
        return rotations(self.entry * self.dims.ratio(self.layer_type), self.frequencies)

    @cached_property
    def pages(self) -> Tensor:
        """``[requests, pages]`` int64 pages of each request."""
        return self.page_table[self.rows.request_slots].long()

    @property
    def most(self) -> int:
        """Entries that a request may have."""
        return self.dims.max_entries(self.layer_type)

    @cached_property
    def taps(self) -> Taps:
        """Where the tokens of the step's groups come from."""
        ratio, rows = self.dims.ratio(self.layer_type), self.rows
        overlap = ratio if self.layer_type is LayerType.CSA else 0
        place = torch.arange(ratio + overlap, device=self.entry.device)
        tap = (self.entry * ratio - overlap).unsqueeze(-1) + place
        start = rows.starts.view(-1, 1, 1)
        ring = self.dims.state_ring_rows(self.layer_type)
        step_rows = rows.first_row.view(-1, 1, 1) + tap - start
        return Taps(
            from_step=tap >= start,
            step_rows=step_rows.clamp(0, max(rows.key.rows - 1, 0)),
            state_rows=rows.request_slots.view(-1, 1, 1) * ring + tap % ring,
            missing=tap < 0,
        )

    @cached_property
    def state_write_rows(self) -> Tensor:
        """``[rows]`` row of the flat state rings that each row is kept in."""
        return kept_ring_rows(self.rows, self.dims.state_ring_rows(self.layer_type), self.dims)

    @cached_property
    def index_write_rows(self) -> Tensor:
        """``[requests * groups]`` row of each group among the pages; the scratch page for incomplete ones."""
        per_page = self.dims.entries_per_page(self.layer_type)
        written = self._among_pages(torch.where(self.complete, self.entry, 0))
        return torch.where(self.complete, written, self.dims.scratch_page * per_page).flatten()

    @cached_property
    def pool_write_rows(self) -> Tensor:
        """The same in a layer's KV pool."""
        return self.dims.entry_region_start + self.index_write_rows

    @cached_property
    def index_rows(self) -> Tensor:
        """``[requests, entries]`` row among the pages of every entry that a request may have."""
        entries = torch.arange(self.most, device=self.entry.device)
        return self._among_pages(entries.expand(self.rows.key.requests, -1))

    @cached_property
    def pool_rows(self) -> Tensor:
        """The same in a layer's KV pool."""
        return self.dims.entry_region_start + self.index_rows

    def _among_pages(self, entry: Tensor) -> Tensor:
        per_page = self.dims.entries_per_page(self.layer_type)
        index = torch.div(entry, per_page, rounding_mode="floor").clamp(max=self.pages.shape[1] - 1)
        return self.pages.gather(1, index) * per_page + entry % per_page


def entry_tables(
    rows: StepRows, dims: Dims, layer_type: LayerType, frequencies: Tensor, page_table: Tensor
) -> EntryTables:
    """Tables of a compressing layer type; arguments as its attributes."""
    ratio, window = dims.ratio(layer_type), dims.sliding_window
    counts = torch.where(rows.valid, torch.div(rows.position + 1, ratio, rounding_mode="floor"), 0)
    return EntryTables(
        rows=rows,
        dims=dims,
        layer_type=layer_type,
        frequencies=frequencies,
        page_table=page_table,
        counts=counts,
        lens=(
            (rows.position + 1).clamp(max=window) + counts.clamp(max=dims.listed_entries(layer_type))
        ).int(),
    )
