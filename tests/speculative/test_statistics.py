"""Accept statistics add up, whatever the grouping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.speculative.statistics import AcceptStatistics, accept_length_interval


def counted(steps: list[tuple[int, int]]) -> AcceptStatistics:
    statistics = AcceptStatistics()
    for drafts, accepted in steps:
        statistics.add(drafts=drafts, accept_len=accepted + 1)
    return statistics


STEPS = st.lists(st.integers(0, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=30)


def test_accept_length_counts_the_bonus():
    """Field report 45: accepted prefixes 3, 2, 1, 0 are 1.5 drafts and 2.5 committed tokens per step."""
    statistics = counted([(3, 3), (3, 2), (3, 1), (3, 0)])
    assert statistics.accept_length == 2.5
    assert statistics.acceptance_rate == pytest.approx(6 / 12)


def test_rates_divide_by_the_drafts_really_offered():
    """Field report 45: a request that offered one draft does not count as five refused ones."""
    statistics = counted([(5, 2), (1, 1)])
    assert statistics.acceptance_rate == pytest.approx(3 / 6)
    assert statistics.acceptance_per_position == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_positions_of_one_request():
    """Field report 64: accepted 3, 0, 1 give per-position counts 2, 1, 1 over three steps."""
    statistics = counted([(3, 3), (3, 0), (3, 1)])
    assert statistics.accepted == [2, 1, 1]
    assert statistics.steps == 3


@given(first=STEPS, second=STEPS)
def test_merging_equals_counting_together(first, second):
    """Field report 45: any grouping into batches gives the same numbers."""
    merged = counted(first)
    merged.merge(counted(second))
    assert merged == counted(first + second)


def test_nothing_counted_has_no_rate():
    empty = AcceptStatistics()
    assert empty.accept_length is None
    assert empty.acceptance_rate is None
    assert counted([(0, 0)]).acceptance_rate is None


def test_conditional_acceptance_divides_by_drafts_that_were_reached():
    """Field report 64: accepted prefixes 3, 0 and 1 of three drafts, and 1 of a step that offered one."""
    statistics = AcceptStatistics()
    for drafts, accepted in ((3, 3), (3, 0), (3, 1), (1, 1)):
        statistics.add(drafts=drafts, accept_len=accepted + 1)
    assert statistics.offered == [4, 3, 3]
    assert statistics.reached == [4, 2, 1]
    assert statistics.accepted == [3, 1, 1]
    assert statistics.conditional_acceptance == [3 / 4, 1 / 2, 1.0]


def test_the_interval_holds_the_accept_length_and_narrows_with_more_requests():
    def requests(count: int) -> list[AcceptStatistics]:
        found = []
        for index in range(count):
            item = AcceptStatistics()
            for step in range(20):
                item.add(drafts=5, accept_len=1 + (index + step * 7) % 6)
            found.append(item)
        return found

    widths = []
    for count in (3, 48):
        items = requests(count)
        total = AcceptStatistics()
        for item in items:
            total.merge(item)
        interval = accept_length_interval(items)
        assert interval is not None
        assert interval[0] <= total.accept_length <= interval[1]
        widths.append(interval[1] - interval[0])
    assert widths[1] < widths[0]
    assert accept_length_interval(requests(1)) is None
