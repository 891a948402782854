"""Tables of a decode or verify step in one launch; see :mod:`~dspark_factory.attention.rows` and its neighbours."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dspark_factory.api import KeyLists
from dspark_factory.attention.entries import EntryTables
from dspark_factory.attention.fused.launch import launch
from dspark_factory.attention.rows import StepRows
from dspark_factory.attention.tables import Frequencies, StepTables, Turn, turns_by_layer_type
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.graph_keys import GraphKey, LayoutForm

ENTRIES_AT_ONCE = 256


@triton.jit
def _row_of_request(
    row, requests, start_loc,
    WIDTH: tl.constexpr, RAGGED: tl.constexpr, BLOCK_REQUESTS: tl.constexpr,
):  # fmt: skip
    """Request that a row belongs to, and its first row; of requests without rows the last one owns the row."""
    if RAGGED:
        candidate = tl.arange(0, BLOCK_REQUESTS)
        starts = tl.load(start_loc + candidate, mask=candidate < requests, other=2147483647)
        request = tl.maximum(tl.sum((starts <= row).to(tl.int32), axis=0) - 1, 0)
        first = tl.load(start_loc + request)
    else:
        request = row // WIDTH
        first = request * WIDTH
    return request, first


@triton.jit
def _write_request(
    request, rows, request_slots, prefix_lens, row_lens, start_loc, slots, starts, ends, first_rows, dense,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, RAGGED: tl.constexpr, HAS_LENS: tl.constexpr,
):  # fmt: skip
    length = tl.load(row_lens + request) if HAS_LENS else WIDTH
    first = tl.load(start_loc + request) if RAGGED else request * WIDTH
    start = tl.load(prefix_lens + request)
    tl.store(slots + request, tl.load(request_slots + request).to(tl.int64))
    tl.store(starts + request, start.to(tl.int64))
    tl.store(ends + request, (start + length).to(tl.int64))
    tl.store(first_rows + request, first + tl.zeros([], tl.int64))
    offset = tl.arange(0, BLOCK_WIDTH)
    row = tl.minimum(first + tl.minimum(offset, tl.maximum(length - 1, 0)), rows - 1)
    tl.store(dense + request * WIDTH + offset, row.to(tl.int64), mask=offset < WIDTH)


@triton.jit
def _write_turn(turns, frequencies, row, position, PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr):
    """Cosines and sines of one position, side by side."""
    pair = tl.arange(0, BLOCK_PAIRS)
    angle = position.to(tl.float32) * tl.load(frequencies + pair, mask=pair < PAIRS, other=0.0)
    side = tl.arange(0, 2)[None, :]
    where = turns + row * (2 * PAIRS) + 2 * pair[:, None] + side
    tl.store(where, tl.join(tl.cos(angle), tl.sin(angle)), mask=(pair < PAIRS)[:, None] & (side < 2))


@triton.jit
def _tables_kernel(
    request_slots, prefix_lens, row_lens, start_loc, page_table,
    row_request, row_slot, row_position, row_valid, row_offset, write_rows, sliding, sliding_lens,
    csa_counts, csa_lens, hca_counts, hca_lens, hca_lists, slots, starts, ends, first_rows, dense,
    main, compress, main_turns, compress_turns, requests, rows, pages, entry_start,
    WIDTH: tl.constexpr, BLOCK_WIDTH: tl.constexpr, RAGGED: tl.constexpr, HAS_LENS: tl.constexpr,
    BLOCK_REQUESTS: tl.constexpr, SCRATCH_SLOT: tl.constexpr, WINDOW: tl.constexpr,
    BLOCK_WINDOW: tl.constexpr, RING: tl.constexpr, CSA_RATIO: tl.constexpr, CSA_LISTED: tl.constexpr,
    HCA_RATIO: tl.constexpr, HCA_LISTED: tl.constexpr, PER_PAGE: tl.constexpr, BLOCK: tl.constexpr,
    PAIRS: tl.constexpr, BLOCK_PAIRS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    if row < requests:
        _write_request(
            row, rows, request_slots, prefix_lens, row_lens, start_loc, slots, starts, ends, first_rows, dense,
            WIDTH, BLOCK_WIDTH, RAGGED, HAS_LENS,
        )  # fmt: skip
    if row < rows:
        request, first = _row_of_request(row, requests, start_loc, WIDTH, RAGGED, BLOCK_REQUESTS)  # pyright: ignore
        offset = row - first
        length = tl.load(row_lens + request) if HAS_LENS else WIDTH
        valid = offset < length
        slot = tl.where(valid, tl.load(request_slots + request), SCRATCH_SLOT)
        position = tl.where(valid, tl.load(prefix_lens + request) + offset, 0)
        tl.store(row_request + row, request.to(tl.int64))
        tl.store(row_slot + row, slot.to(tl.int64))
        tl.store(row_position + row, position.to(tl.int64))
        tl.store(row_valid + row, valid)
        tl.store(row_offset + row, tl.minimum(tl.maximum(offset, 0), WIDTH - 1).to(tl.int64))
        tl.store(write_rows + row, slot.to(tl.int64) * RING + position % RING)
        window = tl.minimum(position + 1, WINDOW)
        place = tl.arange(0, BLOCK_WINDOW)
        ring = slot * RING + (position - window + 1 + place) % RING
        tl.store(sliding + row * WINDOW + place, tl.where(place < window, ring, -1), mask=place < WINDOW)
        tl.store(sliding_lens + row, window)
        _write_turn(main_turns, main, row, position, PAIRS, BLOCK_PAIRS)
        _write_turn(compress_turns, compress, row, position, PAIRS, BLOCK_PAIRS)
        if CSA_RATIO > 0:
            count = tl.where(valid, (position + 1) // CSA_RATIO, 0)
            tl.store(csa_counts + row, count.to(tl.int64))
            tl.store(csa_lens + row, window + tl.minimum(count, CSA_LISTED))
        if HCA_RATIO > 0:
            count = tl.where(valid, (position + 1) // HCA_RATIO, 0)
            tl.store(hca_counts + row, count.to(tl.int64))
            tl.store(hca_lens + row, window + tl.minimum(count, HCA_LISTED))
            lists = hca_lists + row.to(tl.int64) * (WINDOW + HCA_LISTED)
            tl.store(lists + place, ring, mask=place < window)
            for begin in range(0, WINDOW + HCA_LISTED - window, BLOCK):
                entry = begin + tl.arange(0, BLOCK)
                live = entry < count
                page = tl.load(page_table + slot * pages + entry // PER_PAGE, mask=live, other=0)
                listed = entry_start + page * PER_PAGE + entry % PER_PAGE
                room = entry < WINDOW + HCA_LISTED - window
                tl.store(lists + window + entry, tl.where(live, listed, -1), mask=room)


def build_fused_tables(
    key: GraphKey,
    dims: Dims,
    frequencies: Frequencies,
    *,
    request_slots: Tensor,
    prefix_lens: Tensor,
    row_lens: Tensor | None,
    start_loc: Tensor | None,
    page_table: Tensor | None,
) -> StepTables:
    """Tables of a decode or verify step; arguments as of ``expand_rows`` and ``build_tables``."""
    rows, requests, device = key.rows, key.requests, request_slots.device

    def numbers(*sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device=device)

    row = {name: numbers(rows) for name in ("request", "slot", "position", "offset", "write_row")}
    valid = numbers(rows, dtype=torch.bool)
    request = {name: numbers(requests) for name in ("slot", "start", "end", "first_row")}
    dense = numbers(requests, key.width)
    pairs = len(frequencies.main)
    main_turns, compress_turns = (numbers(rows, pairs, 2, dtype=torch.float32) for _ in range(2))
    lists = {kind: _empty_lists(dims, kind, rows, device) for kind in LayerType}
    counts = {kind: numbers(rows) for kind in (LayerType.CSA, LayerType.HCA)}
    csa, hca, sliding = lists[LayerType.CSA], lists[LayerType.HCA], lists[LayerType.SLIDING]
    table = request_slots if page_table is None else page_table
    launch(
        _tables_kernel, (max(rows, requests),),
        request_slots, prefix_lens, request_slots if row_lens is None else row_lens,
        request_slots if start_loc is None else start_loc, table,
        row["request"], row["slot"], row["position"], valid, row["offset"], row["write_row"],
        sliding.rows, sliding.lens, counts[LayerType.CSA], csa.lens, counts[LayerType.HCA], hca.lens, hca.rows,
        request["slot"], request["start"], request["end"], request["first_row"], dense,
        frequencies.main, frequencies.compress, main_turns, compress_turns,
        requests, rows, table.shape[-1], dims.entry_region_start,
        WIDTH=key.width, BLOCK_WIDTH=triton.next_power_of_2(key.width), RAGGED=key.form is LayoutForm.RAGGED,
        HAS_LENS=row_lens is not None, BLOCK_REQUESTS=triton.next_power_of_2(requests),
        SCRATCH_SLOT=dims.scratch_slot, WINDOW=dims.sliding_window,
        BLOCK_WINDOW=triton.next_power_of_2(dims.sliding_window), RING=dims.window_ring_rows,
        CSA_RATIO=dims.csa_ratio if dims.count(LayerType.CSA) else 0, CSA_LISTED=dims.listed_entries(LayerType.CSA),
        HCA_RATIO=dims.hca_ratio if dims.count(LayerType.HCA) else 0, HCA_LISTED=dims.listed_entries(LayerType.HCA),
        PER_PAGE=max(dims.entries_per_page(LayerType.HCA), 1), BLOCK=ENTRIES_AT_ONCE,
        PAIRS=pairs, BLOCK_PAIRS=triton.next_power_of_2(pairs),
    )  # fmt: skip
    step_rows = StepRows(
        key=key,
        request=row["request"],
        slot=row["slot"],
        position=row["position"],
        valid=valid,
        request_slots=request["slot"],
        starts=request["start"],
        ends=request["end"],
        first_row=request["first_row"],
    )

    def entries(kind: LayerType) -> EntryTables | None:
        if not dims.count(kind):
            return None
        assert page_table is not None, "compressing layers have a page table"
        return EntryTables(
            rows=step_rows,
            dims=dims,
            layer_type=kind,
            frequencies=frequencies.compress,
            page_table=page_table,
            counts=counts[kind],
            lens=lists[kind].lens,
        )

    return StepTables(
        rows=step_rows,
        dims=dims,
        turns=turns_by_layer_type(
            Turn(lambda: torch.view_as_complex(main_turns)),
            Turn(lambda: torch.view_as_complex(compress_turns)),
        ),
        page_table=page_table,
        sliding=sliding,
        kv_write_rows=row["write_row"],
        kv_keep_rows=None,
        csa=entries(LayerType.CSA),
        hca=entries(LayerType.HCA),
        dense_rows=dense,
        offsets=row["offset"],
        all_entries=hca if dims.count(LayerType.HCA) else None,
    )


def _empty_lists(dims: Dims, kind: LayerType, rows: int, device: torch.device) -> KeyLists:
    """Memory for lengths, and for lists where this kernel writes them."""
    written = kind is LayerType.SLIDING or (kind is LayerType.HCA and dims.count(kind) > 0)
    keys = dims.list_keys(kind) if written else 0
    lists = torch.empty(rows, keys, dtype=torch.int32, device=device)
    return KeyLists(rows=lists, lens=torch.empty(rows, dtype=torch.int32, device=device))
