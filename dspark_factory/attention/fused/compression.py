"""Compressing the groups that a step completes; see :mod:`~dspark_factory.attention.compressor`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.fused.launch import launch
from dspark_factory.attention.tables import EntryTables, StepTables

TAPS_AT_ONCE = 16
ROWS_AT_ONCE = 8


@triton.jit
def _entry(
    kv, score, kv_stride, score_stride, bias, state, slot, start, first_row, entry,
    HEAD_DIM: tl.constexpr, CHANNELS: tl.constexpr, RATIO: tl.constexpr, OVERLAP: tl.constexpr,
    RING: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Weighted mean of one group's taps: those before the step from the state, the others from the step."""
    channel = tl.arange(0, HEAD_DIM)[None, :]
    top = tl.full([HEAD_DIM], float("-inf"), tl.float32)
    total = tl.zeros([HEAD_DIM], tl.float32)
    mean = tl.zeros([HEAD_DIM], tl.float32)
    for first in range(0, RATIO + OVERLAP, TAPS):
        tap = first + tl.arange(0, TAPS)[:, None]
        position = entry * RATIO - OVERLAP + tap
        present = (position >= 0) & (tap < RATIO + OVERLAP)
        here = present & (position >= start)
        kept = present & (position < start)
        own = tl.where(tap >= RATIO, HEAD_DIM, 0) + channel
        row = first_row + position - start
        new_value = tl.load(kv + row * kv_stride + own, mask=here, other=0.0).to(tl.float32)
        new_score = tl.load(score + row * score_stride + own, mask=here, other=0.0).to(tl.float32)
        new_score += tl.load(bias + (position % RATIO) * CHANNELS + own, mask=here, other=0.0)
        place = (slot * RING + position % RING) * (2 * CHANNELS) + own
        value = tl.where(here, new_value, tl.load(state + place, mask=kept, other=0.0))
        logit = tl.where(here, new_score, tl.load(state + place + CHANNELS, mask=kept, other=0.0))
        logit = tl.where(present, logit, float("-inf"))
        higher = tl.maximum(top, tl.max(logit, axis=0))
        fade = tl.exp(top - higher)
        weight = tl.exp(logit - higher[None, :])
        total = total * fade + tl.sum(weight, axis=0)
        mean = mean * fade + tl.sum(weight * value, axis=0)
        top = higher
    return mean / total


@triton.jit
def _compress_kernel(
    kv, score, kv_stride, score_stride, bias, state, norm_weight, epsilon, slots, starts, ends, first_rows,
    turn, target, target_rows,
    HEAD_DIM: tl.constexpr, CHANNELS: tl.constexpr, RATIO: tl.constexpr, OVERLAP: tl.constexpr,
    RING: tl.constexpr, TAPS: tl.constexpr, GROUPS: tl.constexpr, PAIRS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0)
    slot, start = tl.load(slots + request), tl.load(starts + request)
    end, first_row = tl.load(ends + request), tl.load(first_rows + request)
    for group in range(GROUPS):
        entry = start // RATIO + group
        if (entry + 1) * RATIO <= end:
            mean = _entry(
                kv, score, kv_stride, score_stride, bias, state, slot, start, first_row, entry,
                HEAD_DIM, CHANNELS, RATIO, OVERLAP, RING, TAPS,
            )  # fmt: skip
            scale = tl.rsqrt(tl.sum(mean * mean, axis=0) / HEAD_DIM + epsilon)
            mean *= scale * tl.load(norm_weight + tl.arange(0, HEAD_DIM)).to(tl.float32)
            real, imaginary = tl.split(tl.reshape(mean, [HEAD_DIM // 2, 2]))
            pair = tl.arange(0, HEAD_DIM // 2)
            turns = pair - (HEAD_DIM // 2 - PAIRS)
            place = turn + (request * GROUPS + group) * (2 * PAIRS) + 2 * turns
            cosine = tl.load(place, mask=turns >= 0, other=1.0)
            sine = tl.load(place + 1, mask=turns >= 0, other=0.0)
            turned = tl.join(real * cosine - imaginary * sine, real * sine + imaginary * cosine)
            row = tl.load(target_rows + request * GROUPS + group)
            channel = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
            tl.store(target + row * HEAD_DIM + channel, turned.to(target.dtype.element_ty))
    tl.debug_barrier()  # the state is read by all threads before any overwrites it
    channel = tl.arange(0, CHANNELS)[None, :]
    for first in range(0, end - start, ROWS):
        offset = first + tl.arange(0, ROWS)[:, None]
        here = offset < end - start
        position, row = start + offset, first_row + offset
        place = state + (slot * RING + position % RING) * (2 * CHANNELS) + channel
        value = tl.load(kv + row * kv_stride + channel, mask=here, other=0.0).to(tl.float32)
        logit = tl.load(score + row * score_stride + channel, mask=here, other=0.0).to(tl.float32)
        logit += tl.load(bias + (position % RATIO) * CHANNELS + channel, mask=here, other=0.0)
        tl.store(place, value, mask=here)
        tl.store(place + CHANNELS, logit, mask=here)


def compress(
    compressor: Compressor,
    kv: Tensor,
    score: Tensor,
    tables: StepTables,
    entries: EntryTables,
    *,
    target: Tensor,
    target_rows: Tensor,
) -> None:
    """Write the entries of completed groups, then keep the step's rows in the state.

    Args:
        compressor: of one layer.
        kv: ``[rows, channels]`` projected values.
        score: ``[rows, channels]`` projected scores, without position bias.
        tables: of the step; no request has more rows than its state ring.
        entries: of the layer type.
        target: ``[target rows, head_dim]`` that takes the entries.
        target_rows: ``[requests * groups]`` int64; only those of complete groups are written.
    """
    rows = tables.rows
    ratio, channels = compressor.position_bias.shape
    head_dim, ring = compressor.norm_weight.shape[0], compressor.ring_rows
    requests, groups, pairs = entries.turn.shape
    launch(
        _compress_kernel, (requests,),
        kv, score, kv.stride(0), score.stride(0), compressor.position_bias, compressor.state,
        compressor.norm_weight, compressor.norm_eps, rows.request_slots, rows.starts, rows.ends, rows.first_row,
        torch.view_as_real(entries.turn), target, target_rows,
        HEAD_DIM=head_dim, CHANNELS=channels, RATIO=ratio, OVERLAP=ratio if compressor.overlaps else 0,
        RING=ring, TAPS=min(TAPS_AT_ONCE, triton.next_power_of_2(2 * ratio)), GROUPS=groups, PAIRS=pairs,
        ROWS=ROWS_AT_ONCE,
        num_warps=8,
    )  # fmt: skip
