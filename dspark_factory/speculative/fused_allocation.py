"""Dealing a budget of verify rows as one Triton kernel; see :mod:`dspark_factory.speculative.allocation`."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor, empty, float32, int64

MAX_DRAFTS = 4096 * 16
"""Most drafts of a step, padding included: one program holds them all."""


@triton.jit
def _allocate_kernel(
    survivals, request_stride, position_stride, caps, budget, lens, requests,
    POSITIONS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr, BLOCK_REQUESTS: tl.constexpr,
):  # fmt: skip
    """One program: finds the survival of the last draft that gets a row, then deals rows among its equals."""
    draft = tl.arange(0, BLOCK_POSITIONS * BLOCK_REQUESTS)  # position-major, the order of ties
    position, request = draft // BLOCK_REQUESTS, draft % BLOCK_REQUESTS
    cap = tl.load(caps + request, mask=request < requests, other=0).to(tl.int32)
    allowed = (position < POSITIONS) & (position < cap - 1)
    where = request.to(tl.int64) * request_stride + position * position_stride
    # Numbers that are not negative are ordered as their bits are; what is disallowed comes behind zero.
    value = tl.load(survivals + where, mask=allowed, other=0.0)
    value = tl.where(allowed, tl.where(value > 0, value, 0.0).to(tl.int32, bitcast=True), -1)
    row = tl.arange(0, BLOCK_REQUESTS)
    anchor = (tl.load(caps + row, mask=row < requests, other=0) > 0).to(tl.int32)
    room = tl.load(budget).to(tl.int32) - tl.sum(anchor, axis=0)
    # The largest number that at least ``room`` drafts reach; zero where fewer drafts than that are allowed.
    threshold = tl.zeros([], tl.int32)
    for step in range(31):
        higher = threshold | (1 << (30 - step))
        reached = tl.sum((value >= higher).to(tl.int32), axis=0)
        threshold = tl.where(reached >= room, higher, threshold)
    above = value > threshold
    equal = value == threshold
    needed = room - tl.sum(above.to(tl.int32), axis=0)
    chosen = above | (equal & (tl.cumsum(equal.to(tl.int32), axis=0) <= needed))
    chosen = tl.reshape((chosen & (room > 0)).to(tl.int32), [BLOCK_POSITIONS, BLOCK_REQUESTS])
    tl.store(lens + row, (tl.sum(chosen, axis=0) + anchor).to(tl.int64), mask=row < requests)


def fused_allocate_rows(survivals: Tensor, caps: Tensor, budget: Tensor) -> Tensor:
    """As :func:`~dspark_factory.speculative.allocation.allocate_rows`, in one launch of one program.

    Args:
        survivals: ``[requests, block]`` fp32 in 0..1, not rising along a request; any strides.
        caps: ``[requests]`` integers, contiguous.
        budget: ``[1]`` integer.

    Raises:
        ValueError: survivals are not fp32, or there are more than ``MAX_DRAFTS`` after both sides were padded to
            powers of two.
    """
    requests, block = survivals.shape
    positions, padded = triton.next_power_of_2(block), triton.next_power_of_2(requests)
    drafts = positions * padded
    if survivals.dtype is not float32 or drafts > MAX_DRAFTS:
        raise ValueError(
            f"survivals of {requests} requests with {block} drafts in {survivals.dtype} cannot be dealt by one "
            f"program; it takes float32 and {MAX_DRAFTS} drafts, sides padded to powers of two"
        )
    lens = empty(requests, dtype=int64, device=survivals.device)
    kernel: Any = _allocate_kernel  # its decorator hides launch options and arguments from a checker
    kernel[(1,)](
        survivals, survivals.stride(0), survivals.stride(1), caps, budget, lens, requests,
        POSITIONS=block, BLOCK_POSITIONS=positions, BLOCK_REQUESTS=padded,
        num_warps=min(32, max(4, drafts // 512)),
    )  # fmt: skip
    return lens
