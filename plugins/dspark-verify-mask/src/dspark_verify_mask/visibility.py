"""Applying the mask: index tables without the rows of a step that a row may not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dspark_factory.planning.dims import Dims

if TYPE_CHECKING:
    from dspark_factory.attention.rows import StepRows


def apply_verify_mask(indices: Tensor, mask: Tensor, rows: StepRows, dims: Dims) -> Tensor:
    """The index table with −1 for every row of the same step that the mask hides; a pure function.

    Keys from before the step and compressed entries stay as they are. No host sync, so it may be captured.

    Args:
        indices: ``[rows, keys]`` int64 pool rows of a decode or verify step; negative ones are skipped.
        mask: ``[requests, queries, draft tokens]`` bool, at least as wide as the step.
        rows: row tables of the step.
        dims: geometry.
    """
    ring = dims.window_ring_rows
    in_ring = (indices >= 0) & (indices < dims.ring_region_rows)
    start = rows.starts[rows.request].unsqueeze(1)
    # The place in the ring says which position it is, because a step is shorter than the ring.
    offset = (indices - rows.slot.unsqueeze(1) * ring - start) % ring
    in_step = in_ring & (offset < rows.row_lens[rows.request].unsqueeze(1)) & rows.valid.unsqueeze(1)
    width = mask.shape[-1]
    own = mask[rows.request, rows.offsets().clamp(max=width - 1)]
    visible = own.gather(1, offset.clamp(max=width - 1))
    return torch.where(in_step & ~visible, -1, indices)
