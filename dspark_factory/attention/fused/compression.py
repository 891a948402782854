"""Compressing the groups that a step completes; see :mod:`~dspark_factory.attention.compressor`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.fused.launch import launch
from dspark_factory.attention.tables import EntryTables, StepTables

TAPS_AT_ONCE = 2
TAPS_PER_PART = 16
"""Longer groups are weighed in parts, by programs of their own, because one program alone waits for its loads."""
ROWS_AT_ONCE = 8
LOWEST = tl.constexpr(-1e30)
"""Below every score, and finite, so that a place without a tap stays out of the sums."""


@triton.jit
def _take(top, total, mean, value, logit, present):
    """One more tap in each place of a tile: running maximum, sum of weights and weighted sum of values."""
    higher = tl.maximum(top, tl.where(present, logit, LOWEST))
    fade = tl.exp(top - higher)
    weight = tl.where(present, tl.exp(tl.minimum(logit - higher, 0.0)), 0.0)
    return higher, total * fade + weight, mean * fade + weight * value


@triton.jit
def _join(top, total, mean):
    """Sums of a tile's places as those of one: ``[places, channels]`` to ``[channels]``."""
    highest = tl.max(top, axis=0)
    share = tl.exp(top - highest[None, :])
    return highest, tl.sum(total * share, axis=0), tl.sum(mean * share, axis=0)


@triton.jit
def _weigh(
    kv, score, kv_stride, score_stride, bias, ring, start, end, entry, first_tap, last_tap,
    HEAD_DIM: tl.constexpr, CHANNELS: tl.constexpr, RATIO: tl.constexpr, OVERLAP: tl.constexpr,
    RING: tl.constexpr, TAPS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Sums over some of a group's taps: those before the step from the state, the others from the step.

    Every place of a tile keeps sums of its own, which are joined once, at the end: no thread waits for another before.
    """
    channel = tl.arange(0, HEAD_DIM)[None, :]
    top = tl.full([TAPS, HEAD_DIM], LOWEST, tl.float32)
    total = tl.zeros([TAPS, HEAD_DIM], tl.float32)
    mean = tl.zeros([TAPS, HEAD_DIM], tl.float32)
    first_position = entry * RATIO - OVERLAP
    for offset in range(0, PART, TAPS):
        tap = first_tap + offset + tl.arange(0, TAPS)[:, None]
        position = first_position + tap
        present = (position >= 0) & (position < start) & (tap < last_tap) & (channel >= 0)
        own = tl.where(tap >= RATIO, HEAD_DIM, 0) + channel
        place = ring + (position % RING) * (2 * CHANNELS) + own
        value = tl.load(place, mask=present, other=0.0)
        logit = tl.load(place + CHANNELS, mask=present, other=0.0)
        top, total, mean = _take(top, total, mean, value, logit, present)
    for first in range(start, end, TAPS):
        position = first + tl.arange(0, TAPS)[:, None]
        tap = position - first_position
        present = (tap >= first_tap) & (tap < last_tap) & (position < end) & (channel >= 0)
        own = tl.where(tap >= RATIO, HEAD_DIM, 0) + channel
        row = position - start
        value = tl.load(kv + row * kv_stride + own, mask=present, other=0.0).to(tl.float32)
        logit = tl.load(score + row * score_stride + own, mask=present, other=0.0).to(tl.float32)
        logit += tl.load(bias + (position % RATIO) * CHANNELS + own, mask=present, other=0.0)
        top, total, mean = _take(top, total, mean, value, logit, present)
    return _join(top, total, mean)


@triton.jit
def _store_entry(
    mean, entry, request, group, slot, norm_weight, epsilon, frequencies, page_table, pages, target, target_start,
    HEAD_DIM: tl.constexpr, RATIO: tl.constexpr, GROUPS: tl.constexpr, PAIRS: tl.constexpr,
    PER_PAGE: tl.constexpr,
):  # fmt: skip
    """Norm, rotation at the group's first position, and the page that the entry belongs to."""
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


@triton.jit
def _keep_rows(
    kv, score, kv_stride, score_stride, bias, ring, start, end,
    CHANNELS: tl.constexpr, RATIO: tl.constexpr, RING: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The step's rows into the ring, which has room for them beside those that other programs read."""
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


@triton.jit
def _compress_kernel(
    kv, score, kv_stride, score_stride, bias, state, norm_weight, epsilon, slots, starts, ends, first_rows,
    frequencies, page_table, pages, target, target_start, sums,
    HEAD_DIM: tl.constexpr, CHANNELS: tl.constexpr, RATIO: tl.constexpr, OVERLAP: tl.constexpr,
    RING: tl.constexpr, TAPS: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr,
    PAIRS: tl.constexpr, ROWS: tl.constexpr, PER_PAGE: tl.constexpr,
):  # fmt: skip
    request, program = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(starts + request).to(tl.int32), tl.load(ends + request).to(tl.int32)
    first_row, slot = tl.load(first_rows + request), tl.load(slots + request)
    kv += first_row * kv_stride
    score += first_row * score_stride
    ring = state + slot * (RING * 2 * CHANNELS)
    group, part = program // PARTS, program % PARTS
    entry = start // RATIO + group
    if group == GROUPS:
        _keep_rows(kv, score, kv_stride, score_stride, bias, ring, start, end, CHANNELS, RATIO, RING, ROWS)
    elif (entry + 1) * RATIO <= end:
        first_tap = part * PART
        top, total, mean = _weigh(  # pyright: ignore[reportGeneralTypeIssues]
            kv, score, kv_stride, score_stride, bias, ring, start, end, entry,
            first_tap, tl.minimum(first_tap + PART, RATIO + OVERLAP),
            HEAD_DIM, CHANNELS, RATIO, OVERLAP, RING, TAPS, PART,
        )  # fmt: skip
        if PARTS == 1:
            _store_entry(
                mean / total, entry, request, group, slot, norm_weight, epsilon, frequencies, page_table, pages,
                target, target_start, HEAD_DIM, RATIO, GROUPS, PAIRS, PER_PAGE,
            )  # fmt: skip
        else:
            place = (
                sums + ((request * GROUPS + group) * PARTS + part) * (3 * HEAD_DIM) + tl.arange(0, HEAD_DIM)
            )
            tl.store(place, top)
            tl.store(place + HEAD_DIM, total)
            tl.store(place + 2 * HEAD_DIM, mean)


@triton.jit
def _compress_join_kernel(
    sums, norm_weight, epsilon, slots, starts, ends, frequencies, page_table, pages, target, target_start,
    HEAD_DIM: tl.constexpr, RATIO: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr,
    PAIRS: tl.constexpr, PER_PAGE: tl.constexpr,
):  # fmt: skip
    request, group = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(starts + request).to(tl.int32), tl.load(ends + request).to(tl.int32)
    entry = start // RATIO + group
    if (entry + 1) * RATIO <= end:
        place = sums + (request * GROUPS + group) * (PARTS * 3 * HEAD_DIM)
        place += tl.arange(0, PARTS)[:, None] * (3 * HEAD_DIM) + tl.arange(0, HEAD_DIM)[None, :]
        top, total, mean = tl.load(place), tl.load(place + HEAD_DIM), tl.load(place + 2 * HEAD_DIM)
        _, total, mean = _join(top, total, mean)  # pyright: ignore[reportGeneralTypeIssues]
        _store_entry(
            mean / total, entry, request, group, tl.load(slots + request), norm_weight, epsilon, frequencies,
            page_table, pages, target, target_start, HEAD_DIM, RATIO, GROUPS, PAIRS, PER_PAGE,
        )  # fmt: skip


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
    rows, groups, pages = tables.rows, entries.groups, entries.page_table
    ratio, channels = compressor.position_bias.shape
    head_dim, ring = compressor.norm_weight.shape[0], compressor.ring_rows
    overlap = ratio if compressor.overlaps else 0
    parts = -(-(ratio + overlap) // TAPS_PER_PART)
    sums = torch.empty(
        rows.key.requests * groups * parts * 3 * head_dim if parts > 1 else 0, device=kv.device
    )
    norm = (compressor.norm_weight, compressor.norm_eps)
    where = (entries.frequencies, pages, pages.shape[1], target, target_start or 0)
    sizes = {
        "HEAD_DIM": head_dim, "RATIO": ratio, "PARTS": parts, "GROUPS": groups, "PAIRS": len(entries.frequencies),
        "PER_PAGE": 0 if target_start is None else entries.dims.entries_per_page(entries.layer_type),
    }  # fmt: skip
    launch(
        _compress_kernel, (rows.key.requests, groups * parts + 1),
        kv, score, kv.stride(0), score.stride(0), compressor.position_bias, compressor.state, *norm,
        rows.request_slots, rows.starts, rows.ends, rows.first_row, *where, sums,
        CHANNELS=channels, OVERLAP=overlap, RING=ring, TAPS=TAPS_AT_ONCE, ROWS=ROWS_AT_ONCE,
        PART=min(TAPS_PER_PART, triton.next_power_of_2(ratio + overlap)), num_warps=8, **sizes,
    )  # fmt: skip
    if parts > 1:
        launch(
            _compress_join_kernel, (rows.key.requests, groups),
            sums, *norm, rows.request_slots, rows.starts, rows.ends, *where, num_warps=8, **sizes,
        )  # fmt: skip
