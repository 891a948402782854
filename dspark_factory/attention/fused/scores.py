"""Index scores of the entries that a request has; see :mod:`~dspark_factory.attention.indexer`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, float32

from dspark_factory.attention.fused.launch import launch
from dspark_factory.attention.tables import StepTables

PROGRAMS = 528
"""Programs to aim for, four for each of an H200's multiprocessors; a request's tiles are dealt out among its share."""


@triton.jit
def _scores_kernel(
    q, weights, keys, page_table, slots, starts, ends, first_rows, out,
    q_stride, weights_stride, out_stride, pages, scale,
    HEADS: tl.constexpr, BLOCK_HEADS: tl.constexpr, DIM: tl.constexpr, PER_PAGE: tl.constexpr,
    RATIO: tl.constexpr, TILE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0)
    slot, end = tl.load(slots + request), tl.load(ends + request)
    rows = end - tl.load(starts + request)
    first_row = tl.load(first_rows + request)
    count = end // RATIO
    head, channel = tl.arange(0, BLOCK_HEADS), tl.arange(0, DIM)
    for tile in range(tl.program_id(1), tl.cdiv(count, TILE), tl.num_programs(1)):
        entry = tile * TILE + tl.arange(0, TILE)
        live = entry < count
        page = tl.load(page_table + slot * pages + entry // PER_PAGE, mask=live, other=0).to(tl.int64)
        place = (page * PER_PAGE + entry % PER_PAGE) * DIM
        key = tl.load(keys + place[None, :] + channel[:, None], mask=live[None, :], other=0.0)
        for row in range(first_row, first_row + rows):
            here = head[:, None] < HEADS
            own = tl.load(q + row * q_stride + head[:, None] * DIM + channel[None, :], mask=here, other=0.0)
            if EXACT:
                product = tl.dot(own.to(tl.float32), key.to(tl.float32), input_precision="ieee")
            else:
                product = tl.dot(own, key)
            weight = tl.load(weights + row * weights_stride + head, mask=head < HEADS, other=0.0)
            weighted = tl.maximum(product, 0.0) * (weight.to(tl.float32) * scale)[:, None]
            tl.store(out + row * out_stride + entry, tl.sum(weighted, axis=0), mask=live)


def index_scores(
    q: Tensor,
    weights: Tensor,
    keys: Tensor,
    page_table: Tensor,
    tables: StepTables,
    *,
    ratio: int,
    entries: int,
) -> Tensor:
    """``[rows, entries]`` fp32 scores; those of entries that a request does not have are not written.

    A row's scores are the same bits whatever else the batch holds. Queries and keys of one 16-bit type are multiplied
    by tensor cores, which is exact; others in fp32.

    Args:
        q: ``[rows, heads, channels]``, rotated.
        weights: ``[rows, heads]``.
        keys: ``[pages, entries per page, channels]``.
        page_table: ``[slots, pages per request]`` int32.
        tables: of the step.
        ratio: tokens per entry.
        entries: most entries of a request.
    """
    rows, heads, channels = q.shape
    out = empty(rows, entries, dtype=float32, device=q.device)
    requests = tables.rows.request_slots.shape[0]
    exact = q.dtype != keys.dtype or q.element_size() > 2
    tile = 32 if exact else 128
    shares = min(triton.cdiv(entries, tile), max(1, PROGRAMS // requests))
    launch(
        _scores_kernel, (requests, shares),
        q, weights, keys, page_table, tables.rows.request_slots, tables.rows.starts, tables.rows.ends,
        tables.rows.first_row, out, q.stride(0), weights.stride(0), out.stride(0), page_table.shape[1],
        heads**-0.5 * channels**-0.5,
        HEADS=heads, BLOCK_HEADS=max(16, triton.next_power_of_2(heads)), DIM=channels, PER_PAGE=keys.shape[1],
        RATIO=ratio, TILE=tile, EXACT=exact, num_warps=8 if exact else 4,
    )  # fmt: skip
    return out
