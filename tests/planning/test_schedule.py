"""A schedule of draft tokens by batch size, and the graphs that it needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.config import load_config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.graph_keys import Mode, captured_keys, smallest_fitting, uniform_key
from dspark_factory.planning.plan import plan
from dspark_factory.sweeps.flags import schedule_override
from tests.geometry import DIMS


def verify_pairs(keys) -> set[tuple[int, int]]:
    return {(key.requests, key.width) for key in keys if key.mode is Mode.TARGET_VERIFY}


def test_only_pairs_that_the_schedule_needs_are_captured():
    """Field report 59: the draft length follows the load."""
    config = load_config(
        [
            "speculative.schedule=[[1,6],[3,4],[4,null]]",
            "pipeline.max_requests=8",
            "pipeline.capture_requests=[1,2,4,8]",
        ]
    )
    made = plan(config)
    assert made.dims.verify_widths == (4, 6)
    assert made.dims.num_draft_tokens == 6
    # Batches of 3 run on the graph of 4 requests; nothing from 4 requests on verifies.
    assert verify_pairs(made.graph_keys) == {(1, 6), (2, 6), (4, 4)}
    assert [made.dims.verify_width(size) for size in (1, 2, 3, 4, 8)] == [6, 6, 4, None, None]


@given(
    st.lists(st.tuples(st.integers(2, 40), st.sampled_from([None, 2, 3, 6])), max_size=4),
    st.sampled_from([None, 2, 5]),
    st.sets(st.integers(1, 32), min_size=1, max_size=5),
)
def test_every_batch_size_has_its_graph_and_no_graph_is_idle(later, first, sizes):
    schedule = ((1, first), *sorted(dict(later).items()))
    widths = tuple(sorted({count for _, count in schedule if count}))
    dims = replace(
        DIMS, schedule=schedule, verify_widths=widths, ragged=False, capture_requests=tuple(sorted(sizes))
    )
    keys = captured_keys(dims)
    used = set()
    for requests in range(1, max(sizes) + 1):
        width = dims.verify_width(requests)
        mode = Mode.DECODE if width is None else Mode.TARGET_VERIFY
        key = smallest_fitting(keys, uniform_key(mode, requests=requests, width=width or 1))
        assert key is not None
        used.add(key)
    assert {key for key in keys if key.mode is Mode.TARGET_VERIFY} <= used


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["speculative.schedule=[[2,6]]"], "must begin at 1 and rise"),
        (["speculative.schedule=[[1,6],[4,3],[4,2]]"], "must begin at 1 and rise"),
        (["speculative.schedule=[[1,6,7]]"], "write pairs of a batch size and a count"),
        (["speculative.schedule=[[1,1]]"], "count 1 at 1 requests"),
        (["speculative.schedule=[[1,null]]"], "no count but null"),
        (["speculative.schedule=[[1,6]]", "speculative.num_draft_tokens=4"], "is not the largest count"),
        (["speculative=off", "speculative.schedule=[[1,6]]"], "speculation is off"),
    ],
)
def test_a_schedule_that_cannot_be_used_is_refused(overrides, words):
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        load_config(overrides)


def test_what_a_recommendation_prints_can_be_pasted_back():
    override = schedule_override({1: 6, 8: 4, 32: None}).strip("'")
    dims = plan(load_config([override])).dims
    assert dims.schedule == ((1, 6), (8, 4), (32, None))
    assert schedule_override({1: None}) == "speculative=off"
