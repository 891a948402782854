"""n-gram drafting against a plain search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.speculative.ngram import NgramDrafter


def plain(tokens: list[int], count: int, low: int, high: int) -> list[int]:
    """Longest suffix that occurred before, latest occurrence, continued by copying."""
    for length in range(min(high, len(tokens) - 1), low - 1, -1):
        suffix = tokens[-length:]
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == suffix:
                grown = list(tokens)
                for index in range(count):
                    grown.append(grown[end + index])
                return grown[len(tokens) :]
    return []


@given(
    tokens=st.lists(st.integers(0, 3), max_size=40),
    count=st.integers(0, 7),
    low=st.integers(1, 3),
    extra=st.integers(0, 6),
    cut=st.integers(0, 40),
)
def test_proposals_continue_the_latest_occurrence_of_the_longest_match(tokens, count, low, extra, cut):
    drafter = NgramDrafter(min_match=low, max_match=low + extra)
    drafter.extend(tokens[:cut])
    drafter.extend(tokens[cut:])
    assert drafter.propose(count) == plain(tokens, count, low, low + extra)


def test_a_repeating_pattern_fills_every_draft():
    drafter = NgramDrafter(min_match=1, max_match=8)
    drafter.extend([5, 9, 5, 9, 5])
    assert drafter.propose(6) == [9, 5, 9, 5, 9, 5]


def test_a_large_vocabulary_is_no_obstacle():
    drafter = NgramDrafter(min_match=1, max_match=8)
    drafter.extend([129_279, 55_296, 7, 129_279, 55_296])
    assert drafter.propose(1) == [7]
