"""Rings keep every position that a later step still reads, whatever was drafted and accepted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_factory.config import load_config
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.resolve import resolve_dims

WIDTHS = range(2, 17)
COMPRESSED = (LayerType.CSA, LayerType.HCA)


@cache
def base() -> Dims:
    return resolve_dims(load_config(["model=v4_flash", "speculative=dspark"]))


def dims_of(width: int, *, window: int = 128) -> Dims:
    return replace(base(), num_draft_tokens=width, verify_widths=(width,), sliding_window=window)


class Ring:
    """Position ``p`` lies at ``p % rows``; a step writes all its rows, the rejected ones too."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.held: dict[int, int] = {}

    def write(self, first: int, count: int) -> None:
        for position in range(first, first + count):
            self.held[position % self.rows] = position

    def holds(self, position: int) -> bool:
        return self.held.get(position % self.rows) == position


def window_survives(rows: int, window: int, steps: list[tuple[int, int]]) -> bool:
    """A step at ``prefix`` writes its rows, then row ``q`` reads back to ``q - window + 1``."""
    ring, prefix = Ring(rows), 0
    for width, accept_len in steps:
        ring.write(prefix, width)
        for position in range(prefix, prefix + width):
            if not all(ring.holds(read) for read in range(max(position - window + 1, 0), position + 1)):
                return False
        prefix += accept_len
    return True


def state_survives(rows: int, ratio: int, back: int, steps: list[tuple[int, int]]) -> bool:
    """A row that completes a group reads ``back`` positions; those before the step come from the ring.

    Whether before, while or after the step's own rows are written.
    """
    ring, prefix = Ring(rows), 0
    for width, accept_len in steps:
        reads = [
            read
            for position in range(prefix, prefix + width)
            if (position + 1) % ratio == 0
            for read in range(max(position - back, 0), min(position, prefix))
        ]
        if not all(ring.holds(read) for read in reads):
            return False
        ring.write(prefix, width)
        if not all(ring.holds(read) for read in reads):
            return False
        prefix += accept_len
    return True


def back_of(dims: Dims, layer_type: LayerType) -> int:
    return dims.ratio(layer_type) * (2 if layer_type is LayerType.CSA else 1) - 1


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A verify width and steps of it, or single rows, each with what it committed."""
    width = draw(st.sampled_from(WIDTHS))
    one = st.sampled_from([1, width]).flatmap(
        lambda used: st.integers(1, used).map(lambda accept_len: (used, accept_len))
    )
    return width, draw(st.lists(one, min_size=1, max_size=120))


@settings(max_examples=60, deadline=None)
@given(histories())
def test_the_window_ring_keeps_what_later_steps_read(history: tuple[int, list[tuple[int, int]]]) -> None:
    """Field report 24: for every draft-token count and accept length, committed tokens stay resident."""
    width, steps = history
    dims = dims_of(width, window=16)
    assert window_survives(dims.window_ring_rows, dims.sliding_window, steps)


@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from(COMPRESSED))
def test_the_state_ring_keeps_what_later_groups_read(
    history: tuple[int, list[tuple[int, int]]], layer_type: LayerType
) -> None:
    """Field report 24: the compressor's rings survive rejected drafts too."""
    width, steps = history
    dims = dims_of(width)
    rows, ratio = dims.state_ring_rows(layer_type), dims.ratio(layer_type)
    assert state_survives(rows, ratio, back_of(dims, layer_type), steps)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_count_and_every_accept_length_survives_at_full_size(width: int) -> None:
    """Field report 24: all counts are swept, not only the end points."""
    dims = dims_of(width)
    for accept_len in range(1, width + 1):
        steps = [(width, accept_len)] * (300 // accept_len)
        assert window_survives(dims.window_ring_rows, dims.sliding_window, steps)
        for layer_type in COMPRESSED:
            rows, ratio = dims.state_ring_rows(layer_type), dims.ratio(layer_type)
            assert state_survives(rows, ratio, back_of(dims, layer_type), steps)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_ring_is_larger_than_it_must_be(width: int) -> None:
    dims = dims_of(width)
    everything_rejected = [(width, 1)] * 300
    assert not window_survives(dims.window_ring_rows - 1, dims.sliding_window, everything_rejected)
    for layer_type in COMPRESSED:
        rows, ratio = dims.state_ring_rows(layer_type) - 1, dims.ratio(layer_type)
        assert not state_survives(rows, ratio, back_of(dims, layer_type), everything_rejected)


def test_rings_fit_the_largest_candidate() -> None:
    few = replace(base(), num_draft_tokens=4, verify_widths=(2, 4, 8))
    assert few.window_ring_rows == few.sliding_window + 7
