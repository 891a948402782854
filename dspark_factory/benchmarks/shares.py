"""Where a step's device time goes, by the names of its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PARTS = {
    "attention": ("sparse_attention", "BatchMLA", "flash_fwd", "mla_combine", "splitkv", "combine"),
    "index_scores": ("_scores_kernel",),
    "selection": ("_select_kernel",),
    "compression": ("_compress_kernel", "_compress_join_kernel"),
    "rotation_and_kv_write": ("_rotate", "_write_kernel"),
}
"""Part of a step by what the names of its kernels contain; everything else is tables, sampling and copies."""

STAND_INS = ("vectorized_gather", "CUDAFunctor_add<c10::BFloat16>", "CUDAFunctor_add<float>")
"""Kernels of the look-ups and sums that take the place of projections; no part of a step."""


def kernel_shares(work: Callable[[], None]) -> dict[str, Any]:
    """Share of each part in the time of the step's kernels in ``work``; empty without a device to ask.

    ``stand_in_share`` is what the stand-ins for projections take of the time of all kernels.
    """
    if not torch.cuda.is_available():
        return {}
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        work()
        torch.cuda.synchronize()
    totals: dict[str, float] = dict.fromkeys([*PARTS, "other"], 0.0)
    launches, stand_ins = 0, 0.0
    for event in seen.key_averages():
        if "memcpy" in event.key.lower() or event.device_type.name != "CUDA":
            continue
        if any(mark in event.key for mark in STAND_INS):
            stand_ins += event.self_device_time_total
            continue
        totals[_part_of(event.key)] += event.self_device_time_total
        launches += event.count
    whole = sum(totals.values())
    if not whole:
        return {}
    return {
        "kernel_shares": {name: spent / whole for name, spent in totals.items()},
        "stand_in_share": stand_ins / (stand_ins + whole),
        "kernels": launches,
    }


def _part_of(name: str) -> str:
    return next((part for part, marks in PARTS.items() if any(mark in name for mark in marks)), "other")
