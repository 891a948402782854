"""Selecting entries and writing them into key lists; see :func:`~dspark_factory.attention.indexer.top_entries`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, int32

from dspark_factory.api import KeyLists
from dspark_factory.attention.fused.launch import launch
from dspark_factory.attention.tables import EntryTables, StepTables
from dspark_factory.planning.dims import Dims, LayerType

FEW, MANY = 1024, 4096
"""Entries at once: of a row that has no more than the first, which stay in registers, and of all others.

Each has a launch of its own, because few entries are fastest with few warps, whose threads hardly wait for one another.
"""


@triton.jit
def _ordered(scores, entry, live):
    """Scores as unsigned integers of the same order."""
    bits = (tl.load(scores + entry, mask=live, other=0.0) + 0.0).to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return bits.to(tl.uint32, bitcast=True) ^ 0x80000000


@triton.jit
def _pool_row(page_table, entry, live, entry_start, PER_PAGE: tl.constexpr):
    page = tl.load(page_table + entry // PER_PAGE, mask=live, other=0)
    return entry_start + page * PER_PAGE + entry % PER_PAGE


@triton.jit
def _threshold(scores, count, TOPK: tl.constexpr, BLOCK: tl.constexpr):
    """The TOPK-th largest of ``count`` scores as an ordered integer, and how many of its equals are needed."""
    needed = TOPK
    prefix = tl.zeros([], tl.uint32)
    digit = tl.arange(0, 256)
    for step in tl.static_range(4):
        shift = 24 - 8 * step
        histogram = tl.zeros([256], tl.int32)
        for first in range(0, count, BLOCK):
            entry = first + tl.arange(0, BLOCK)
            live = entry < count
            value = _ordered(scores, entry, live)
            if step > 0:
                live = live & ((value >> (shift + 8)) == (prefix >> (shift + 8)))
            histogram += tl.histogram(((value >> shift) & 255).to(tl.int32), 256, mask=live)
        at_least = tl.cumsum(histogram, axis=0, reverse=True)
        chosen = tl.max(tl.where(at_least >= needed, digit, 0), axis=0)
        needed -= tl.sum(tl.where(digit > chosen, histogram, 0), axis=0)
        prefix = prefix | (chosen.to(tl.uint32) << shift)
    return prefix, needed


@triton.jit
def _write_best_of_few(
    scores, count, page_table, out, entry_start,
    TOPK: tl.constexpr, PER_PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """As :func:`_write_best`, of at most BLOCK entries: the threshold is found bit by bit, by counting."""
    entry = tl.arange(0, BLOCK)
    live = entry < count
    value = _ordered(scores, entry, live)
    threshold = tl.zeros([], tl.uint32)
    for step in tl.static_range(32):
        higher = threshold | (1 << (31 - step))
        enough = tl.sum((live & (value >= higher)).to(tl.int32), axis=0) >= TOPK
        threshold = tl.where(enough, higher, threshold)
    above = live & (value > threshold)
    equal = live & (value == threshold)
    needed = TOPK - tl.sum(above.to(tl.int32), axis=0)
    chosen = above | (equal & (tl.cumsum(equal.to(tl.int32), axis=0) <= needed))
    target = tl.cumsum(chosen.to(tl.int32), axis=0) - 1
    tl.store(out + target, _pool_row(page_table, entry, live, entry_start, PER_PAGE), mask=chosen)


@triton.jit
def _write_best(
    scores, count, page_table, out, entry_start,
    TOPK: tl.constexpr, PER_PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pool rows of the TOPK best of ``count`` entries, in ascending order of entries."""
    threshold, needed = _threshold(scores, count, TOPK, BLOCK)  # pyright: ignore[reportGeneralTypeIssues]
    taken = 0
    equals = 0
    for first in range(0, count, BLOCK):
        entry = first + tl.arange(0, BLOCK)
        live = entry < count
        value = _ordered(scores, entry, live)
        equal = live & (value == threshold)
        rank = equals + tl.cumsum(equal.to(tl.int32), axis=0)
        chosen = (live & (value > threshold)) | (equal & (rank <= needed))
        target = taken + tl.cumsum(chosen.to(tl.int32), axis=0) - 1
        tl.store(out + target, _pool_row(page_table, entry, live, entry_start, PER_PAGE), mask=chosen)
        taken += tl.sum(chosen.to(tl.int32), axis=0)
        equals += tl.sum(equal.to(tl.int32), axis=0)


@triton.jit
def _select_kernel(
    scores, scores_stride, page_table, pages, request_slots, requests, slots, positions, counts, lens, out,
    entry_start,
    TOPK: tl.constexpr, WINDOW: tl.constexpr, BLOCK_WINDOW: tl.constexpr, RING: tl.constexpr,
    PER_PAGE: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr, BLOCK_KEYS: tl.constexpr,
    MORE_THAN: tl.constexpr,
):  # fmt: skip
    """Lists of rows that have more than ``MORE_THAN`` entries, or, where that is 0, of those with ``BLOCK`` at most."""
    row = tl.program_id(0).to(tl.int64)
    count, length = tl.load(counts + row).to(tl.int32), tl.load(lens + row)
    if (count > BLOCK) if MORE_THAN == 0 else (count <= MORE_THAN):
        return
    window = length - tl.minimum(count, TOPK)
    out += row * KEYS
    place = tl.arange(0, BLOCK_WINDOW)
    seen = tl.load(positions + row) - window + 1 + place
    tl.store(out + place, (tl.load(slots + row) * RING + seen % RING).to(tl.int32), mask=place < window)
    place = tl.arange(0, BLOCK_KEYS)
    tl.store(out + place, -1, mask=(place >= length) & (place < KEYS))
    out += window
    scores += row * scores_stride
    page_table += tl.load(request_slots + tl.load(requests + row)) * pages
    if count <= TOPK:
        for first in range(0, count, BLOCK):
            entry = first + tl.arange(0, BLOCK)
            live = entry < count
            tl.store(out + entry, _pool_row(page_table, entry, live, entry_start, PER_PAGE), mask=live)
    elif MORE_THAN == 0:
        _write_best_of_few(scores, count, page_table, out, entry_start, TOPK, PER_PAGE, BLOCK)
    else:
        _write_best(scores, count, page_table, out, entry_start, TOPK, PER_PAGE, BLOCK)


def select(
    scores: Tensor, page_table: Tensor, tables: StepTables, entries: EntryTables, dims: Dims
) -> KeyLists:
    """Key lists of a sparse layer: the window, then the best entries in ascending order, ties to the earlier.

    Args:
        scores: ``[rows, entries]`` fp32; only a row's completed entries are read.
        page_table: ``[slots, pages per request]`` int32.
        tables: of a decode or verify step.
        entries: of the sparse layers.
        dims: geometry.
    """
    rows, keys = tables.rows, dims.list_keys(LayerType.CSA)
    out = empty(scores.shape[0], keys, dtype=int32, device=scores.device)
    most = max(256, triton.next_power_of_2(scores.shape[1]))
    few = min(FEW, most)
    for more_than, block, warps in ((0, few, 2), (few, MANY, 8)):
        if more_than < scores.shape[1]:
            launch(
                _select_kernel, (scores.shape[0],),
                scores, scores.stride(0), page_table, page_table.shape[1], rows.request_slots, rows.request,
                rows.slot, rows.position, entries.counts, entries.lens, out, dims.entry_region_start,
                TOPK=dims.selected_entries, WINDOW=dims.sliding_window,
                BLOCK_WINDOW=triton.next_power_of_2(dims.sliding_window),
                RING=dims.window_ring_rows, PER_PAGE=dims.entries_per_page(LayerType.CSA), KEYS=keys,
                BLOCK=block, BLOCK_KEYS=triton.next_power_of_2(keys), MORE_THAN=more_than, num_warps=warps,
            )  # fmt: skip
    return KeyLists(rows=out, lens=entries.lens)
