"""Compressing the groups that a step completes; see :mod:`~dspark_factory.attention.compressor`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.fused.launch import launch
from dspark_factory.attention.tables import EntryTables, StepTables

TAPS_AT_ONCE = 16
ROWS_AT_ONCE = 8
LOWEST = tl.constexpr(-1e30)
"""Below every score, and finite, so that a place without a tap stays out of the sums."""


@triton.jit
def _take(top, total, mean, value, logit, present):
    """One more tap in each place of a tile: running maximum, sum of weights and weighted sum of values."""
    higher = tl.maximum(top, tl.where(present, logit, LOWEST))
    fade = tl.exp(top - higher)
    weight = tl.where(present, tl.exp(logit - higher), 0.0)
    return higher, total * fade + weight, mean * fade + weight * value


@triton.jit
def _entry(
    kv, score, kv_stride, score_stride, bias, ring, start, end, entry,
    HEAD_DIM: tl.constexpr, CHANNELS: tl.constexpr, RATIO: tl.constexpr, OVERLAP: tl.constexpr,
    RING: tl.constexpr, TAPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Weighted mean of one group's taps: those before the step from the state, the others from the step.

    Every place of a tile keeps sums of its own, which are joined once, at the end: no thread waits for another before.
    """
    channel = tl.arange(0, HEAD_DIM)[None, :]
    top = tl.full([TAPS, HEAD_DIM], LOWEST, tl.float32)
    total = tl.zeros([TAPS, HEAD_DIM], tl.float32)
    mean = tl.zeros([TAPS, HEAD_DIM], tl.float32)
    first_position = entry * RATIO - OVERLAP
    for first in tl.range(0, RATIO + OVERLAP, TAPS, num_stages=STAGES):
        tap = first + tl.arange(0, TAPS)[:, None]
        position = first_position + tap
        present = (position >= 0) & (position < start) & (tap < RATIO + OVERLAP) & (channel >= 0)
        own = tl.where(tap >= RATIO, HEAD_DIM, 0) + channel
        place = ring + (position % RING) * (2 * CHANNELS) + own
        value = tl.load(place, mask=present, other=0.0)
        logit = tl.load(place + CHANNELS, mask=present, other=0.0)
        top, total, mean = _take(top, total, mean, value, logit, present)
    for first in range(start, end, TAPS):
        position = first + tl.arange(0, TAPS)[:, None]
        tap = position - first_position
        present = (tap >= 0) & (tap < RATIO + OVERLAP) & (position < end) & (channel >= 0)
        own = tl.where(tap >= RATIO, HEAD_DIM, 0) + channel
        row = position - start
        value = tl.load(kv + row * kv_stride + own, mask=present, other=0.0).to(tl.float32)
        logit = tl.load(score + row * score_stride + own, mask=present, other=0.0).to(tl.float32)
        logit += tl.load(bias + (position % RATIO) * CHANNELS + own, mask=present, other=0.0)
        top, total, mean = _take(top, total, mean, value, logit, present)
    share = tl.exp(top - tl.max(top, axis=0)[None, :])
    return tl.sum(mean * share, axis=0) / tl.sum(total * share, axis=0)


@triton.jit
def _compress_kernel(
    kv, score, kv_stride, score_stride, bias, state, norm_weight, epsilon, slots, starts, ends, first_rows,
    frequencies, page_table, pages, target, target_start,
    HEAD_DIM: tl.constexpr, CHANNELS: tl.constexpr, RATIO: tl.constexpr, OVERLAP: tl.constexpr,
    RING: tl.constexpr, TAPS: tl.constexpr, GROUPS: tl.constexpr, PAIRS: tl.constexpr, ROWS: tl.constexpr,
    PER_PAGE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0)
    start, end = tl.load(starts + request).to(tl.int32), tl.load(ends + request).to(tl.int32)
    first_row = tl.load(first_rows + request)
    kv += first_row * kv_stride
    score += first_row * score_stride
    slot = tl.load(slots + request)
    ring = state + slot * (RING * 2 * CHANNELS)
    group = tl.program_id(1)
    if group < GROUPS:
        entry = start // RATIO + group
        if (entry + 1) * RATIO <= end:
            mean = _entry(
                kv, score, kv_stride, score_stride, bias, ring, start, end, entry,
                HEAD_DIM, CHANNELS, RATIO, OVERLAP, RING, TAPS, STAGES,
            )  # fmt: skip
            scale = tl.rsqrt(tl.sum(mean * mean, axis=0) / HEAD_DIM + epsilon)
            mean *= scale * tl.load(norm_weight + tl.arange(0, HEAD_DIM)).to(tl.float32)
            real, imaginary = tl.split(tl.reshape(mean, [HEAD_DIM // 2, 2]))
            pair = tl.arange(0, HEAD_DIM // 2)
            turns = pair - (HEAD_DIM // 2 - PAIRS)
            # Channels that are not rotated turn by an angle of zero.
            angle = (entry * RATIO).to(tl.float32)
            angle *= tl.load(frequencies + turns, mask=turns >= 0, other=0.0)
            cosine, sine = tl.cos(angle), tl.sin(angle)
            turned = tl.join(real * cosine - imaginary * sine, real * sine + imaginary * cosine)
            if PER_PAGE > 0:
                page = tl.load(page_table + slot * pages + entry // PER_PAGE).to(tl.int64)
                row = target_start + page * PER_PAGE + entry % PER_PAGE
            else:
                row = request.to(tl.int64) * GROUPS + group
            channel = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
            tl.store(target + row * HEAD_DIM + channel, turned.to(target.dtype.element_ty))
    else:  # the ring has room for these rows beside those that other programs read
        channel = tl.arange(0, CHANNELS)[None, :]
        for first in range(0, end - start, ROWS):
            offset = first + tl.arange(0, ROWS)[:, None]
            here = offset < end - start
            position = start + offset
            place = ring + (position % RING) * (2 * CHANNELS) + channel
            value = tl.load(kv + offset * kv_stride + channel, mask=here, other=0.0).to(tl.float32)
            logit = tl.load(score + offset * score_stride + channel, mask=here, other=0.0).to(tl.float32)
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
    target_start: int | None,
) -> None:
    """Write the entries of completed groups, then keep the step's rows in the state.

    Args:
        compressor: of one layer.
        kv: ``[rows, channels]`` projected values.
        score: ``[rows, channels]`` projected scores, without position bias.
        tables: of the step; no request has more rows than its state ring.
        entries: of the layer type.
        target: ``[target rows, head_dim]`` that takes the entries of complete groups.
        target_start: its row where pages begin; ``None`` for a target of ``[requests * groups, head_dim]``.
    """
    rows = tables.rows
    ratio, channels = compressor.position_bias.shape
    head_dim, ring = compressor.norm_weight.shape[0], compressor.ring_rows
    per_page = 0 if target_start is None else entries.dims.entries_per_page(entries.layer_type)
    launch(
        _compress_kernel, (rows.key.requests, entries.groups + 1),
        kv, score, kv.stride(0), score.stride(0), compressor.position_bias, compressor.state,
        compressor.norm_weight, compressor.norm_eps, rows.request_slots, rows.starts, rows.ends, rows.first_row,
        entries.frequencies, entries.page_table, entries.page_table.shape[1], target, target_start or 0,
        HEAD_DIM=head_dim, CHANNELS=channels, RATIO=ratio, OVERLAP=ratio if compressor.overlaps else 0,
        RING=ring, TAPS=min(TAPS_AT_ONCE, triton.next_power_of_2(2 * ratio)), GROUPS=entries.groups,
        PAIRS=len(entries.frequencies), ROWS=ROWS_AT_ONCE, PER_PAGE=per_page, STAGES=1,
        num_warps=16 if ratio > TAPS_AT_ONCE else 8,
    )  # fmt: skip
