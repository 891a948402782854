"""Requests become rows: every mode against a plain loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.attention.rows import (
    draft_block_indices,
    expand_rows,
    kept_ring_rows,
    ring_rows,
    window_indices,
)
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode, ragged_key, uniform_key
from tests.geometry import DIMS


def rows_of(key, slots, prefixes, lens=None, starts=None, dims: Dims = DIMS):
    def tensor(values):
        return None if values is None else torch.tensor(values, dtype=torch.int32)

    return expand_rows(
        key,
        dims,
        request_slots=torch.tensor(slots, dtype=torch.int32),
        prefix_lens=torch.tensor(prefixes, dtype=torch.int32),
        row_lens=tensor(lens),
        start_loc=tensor(starts),
    )


def test_uniform_and_ragged_layouts_give_the_same_rows():
    """Field report 28: verify lengths 6, 1, 3 start at rows 0, 6 and 7 and are ten rows."""
    lens = [6, 1, 3]
    uniform = rows_of(uniform_key(Mode.TARGET_VERIFY, requests=3, width=6), [2, 0, 1], [10, 0, 5], lens)
    key = ragged_key(Mode.TARGET_VERIFY, requests=3, rows=10, width=6)
    ragged = rows_of(key, [2, 0, 1], [10, 0, 5], lens, starts=[0, 6, 7])
    kept = uniform.valid
    assert kept.sum() == 10
    assert bool(ragged.valid.all())
    for name in ("slot", "position", "request"):
        assert torch.equal(getattr(uniform, name)[kept], getattr(ragged, name))


def test_padding_rows_use_the_scratch_slot_and_position_zero():
    """Field report 32: unknown requests share the scratch slot, which is behind the pool and never 0."""
    key = ragged_key(Mode.TARGET_VERIFY, requests=4, rows=12, width=6)
    rows = rows_of(
        key, [0, 1, DIMS.scratch_slot, DIMS.scratch_slot], [7, 9, 0, 0], [2, 3, 0, 0], [0, 2, 5, 5]
    )
    assert rows.valid.tolist() == [True] * 5 + [False] * 7
    assert set(rows.slot[5:].tolist()) == {DIMS.scratch_slot}
    assert DIMS.scratch_slot == DIMS.max_requests != 0
    assert set(rows.position[5:].tolist()) == {0}


@pytest.mark.parametrize(
    ("position", "seen"), [(3, [0, 1, 2, 3]), (4, [1, 2, 3, 4]), (5, [2, 3, 4, 5]), (9, [6, 7, 8, 9])]
)
def test_the_window_counts_the_row_itself(position, seen):
    """Field report 35: a window of four at position 9 sees 6 to 9; verify rows shift by one each."""
    dims = replace(DIMS, sliding_window=4)
    rows = rows_of(uniform_key(Mode.DECODE, requests=1, width=1), [1], [position], dims=dims)
    ring = dims.window_ring_rows
    indices = window_indices(rows, dims, in_flight=False)[0]
    assert indices[indices >= 0].tolist() == [ring + place % ring for place in seen]
    verify = rows_of(uniform_key(Mode.TARGET_VERIFY, requests=1, width=6), [1], [position], [6], dims=dims)
    last = window_indices(verify, dims, in_flight=False)[5]
    assert last.tolist() == [ring + place % ring for place in range(position + 2, position + 6)]


@given(
    prefixes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    data=st.data(),
)
def test_an_in_flight_window_reads_the_past_from_the_ring_and_the_step_from_the_pool(prefixes, data):
    lens = [data.draw(st.integers(1, 20)) for _ in prefixes]
    starts = [sum(lens[:i]) for i in range(len(lens))]
    key = ragged_key(Mode.EXTEND, requests=len(lens), rows=sum(lens), width=max(lens))
    slots = list(range(len(lens)))
    rows = rows_of(key, slots, prefixes, lens, starts)
    got = window_indices(rows, DIMS, in_flight=True)
    ring = DIMS.window_ring_rows
    for slot, (prefix, length, start) in enumerate(zip(prefixes, lens, starts, strict=True)):
        for offset in range(length):
            position = prefix + offset
            expected = []
            for seen in range(position - DIMS.sliding_window + 1, position + 1):
                if seen < 0:
                    expected.append(-1)
                elif seen >= prefix:
                    expected.append(DIMS.ring_region_rows + start + seen - prefix)
                else:
                    expected.append(slot * ring + seen % ring)
            assert got[start + offset].tolist() == expected


def test_a_draft_block_sees_its_context_window_and_the_whole_block():
    dims = replace(DIMS, sliding_window=4)
    rows = rows_of(uniform_key(Mode.DRAFT_BLOCK, requests=2, width=3), [0, 1], [6, 2], [3, 3], dims=dims)
    table = draft_block_indices(rows, dims)
    ring, block = dims.window_ring_rows, dims.ring_region_rows
    assert table.shape == (6, 4 + 3)
    for row in range(3):
        context = [place % ring for place in (2, 3, 4, 5)]
        assert table[row].tolist() == [*context, block, block + 1, block + 2]
        short = [-1, -1, ring, ring + 1]
        assert table[3 + row].tolist() == [*short, block + 3, block + 4, block + 5]


def test_a_chunk_longer_than_the_ring_keeps_its_newest_rows():
    ring = DIMS.window_ring_rows
    length = ring + 9
    key = ragged_key(Mode.EXTEND, requests=1, rows=length, width=length)
    rows = rows_of(key, [1], [3], [length], [0])
    kept = kept_ring_rows(rows, ring, DIMS)
    scratch = DIMS.scratch_slot * ring
    assert kept[:9].tolist() == [scratch] * 9
    assert torch.equal(kept[9:], ring_rows(rows, ring)[9:])
    assert len(set(kept[9:].tolist())) == ring
