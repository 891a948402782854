"""Dealing a budget of verify rows to the likeliest drafts, on the device."""

from __future__ import annotations

import torch
from torch import Tensor


def allocate_rows(survivals: Tensor, caps: Tensor, budget: Tensor) -> Tensor:
    """Rows per request, ``[requests]`` int64, as :func:`~dspark_factory.speculative.scheduler.allocate` deals them.

    No host sync and static shapes, so that it runs inside a captured graph. Whatever the survivals are, no request
    exceeds its cap, and their rows exceed the budget only by anchors.

    Args:
        survivals: ``[requests, block]`` in 0..1, not rising along a request.
        caps: ``[requests]`` integers, most rows of each request, the anchor included; 0 for padding requests.
        budget: ``[1]`` integer, rows of the whole step, anchors included.
    """
    block = survivals.shape[1]
    drafts = torch.arange(survivals.numel(), device=survivals.device)
    # Position-major, so that the stable sort breaks ties by position and then by request.
    allowed = drafts[:block].unsqueeze(1) < caps - 1
    order = survivals.T.masked_fill(~allowed, -1).flatten().argsort(stable=True, descending=True)
    anchors = caps > 0
    rank = torch.empty_like(drafts).scatter_(0, order, drafts).view_as(allowed)
    return (allowed & (rank < budget - anchors.sum())).sum(0) + anchors
