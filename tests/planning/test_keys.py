"""Which graphs are captured, and which batch runs on which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.config import load_config
from dspark_factory.planning.graph_keys import (
    LayoutForm,
    Mode,
    captured_keys,
    ragged_key,
    ragged_tiers,
    smallest_fitting,
    uniform_key,
)
from dspark_factory.planning.resolve import resolve_dims

VERIFY = Mode.TARGET_VERIFY


def test_equal_row_counts_of_different_geometry_are_different_keys() -> None:
    """Field report 15: 192 tokens can be 192 requests of 1 or 32 of 6."""
    wide = uniform_key(VERIFY, requests=32, width=6)
    narrow = uniform_key(VERIFY, requests=192, width=1)
    assert wide.rows == narrow.rows == 192
    assert wide != narrow
    assert str(wide) != str(narrow)


@pytest.mark.parametrize(
    "other",
    [
        uniform_key(VERIFY, requests=192, width=1),
        uniform_key(Mode.DECODE, requests=32, width=6),
        uniform_key(VERIFY, requests=32, width=7),
        ragged_key(VERIFY, requests=32, rows=192, width=6),
        uniform_key(VERIFY, requests=16, width=6),
    ],
)
def test_a_batch_is_never_routed_to_another_geometry(other: object) -> None:
    """Field report 15: a batch with no matching geometry is refused, not routed."""
    assert smallest_fitting([other], uniform_key(VERIFY, requests=32, width=6)) is None  # type: ignore[list-item]


def test_the_smallest_bucket_that_holds_the_batch_is_taken() -> None:
    keys = [uniform_key(VERIFY, requests=requests, width=6) for requests in (8, 1, 4, 2)]
    assert smallest_fitting(keys, uniform_key(VERIFY, requests=3, width=6)) == keys[2]
    ragged = [ragged_key(VERIFY, requests=4, rows=rows, width=6) for rows in (24, 12)]
    assert smallest_fitting(ragged, ragged_key(VERIFY, requests=3, rows=10, width=6)) == ragged[1]
    assert smallest_fitting(ragged, ragged_key(VERIFY, requests=3, rows=13, width=6)) == ragged[0]


@pytest.mark.parametrize(("requests", "width", "rows"), [(32, 17, 544), (6, 7, 42)])
def test_users_count_requests_and_the_exact_maximum_is_captured(requests: int, width: int, rows: int) -> None:
    """Field report 17: 32 requests of 17 are 544 rows, 6 of 7 are 42 and never 40."""
    dims = resolve_dims(
        load_config(
            [
                f"speculative.num_draft_tokens={width}",
                f"pipeline.max_requests={requests}",
                f"pipeline.capture_requests=[1,2,{requests}]",
            ]
        )
    )
    verify = [key for key in captured_keys(dims) if key.mode is VERIFY]
    assert max(key.rows for key in verify) == rows
    assert all(key.rows % width == 0 for key in verify)
    assert all(key.rows == key.requests * key.width for key in verify)


def test_graphs_are_captured_largest_first_and_once() -> None:
    dims = resolve_dims(
        load_config(
            [
                "speculative.verify_layout=ragged",
                "speculative.ragged_shares=[0.25,0.5,1.0]",
                "speculative.draft_token_candidates=[3]",
                "pipeline.capture_requests=[4,1,2,2]",
            ]
        )
    )
    keys = captured_keys(dims)
    assert len(set(keys)) == len(keys)
    assert [key.rows for key in keys] == sorted((key.rows for key in keys), reverse=True)
    assert {key.form for key in keys if key.mode is VERIFY} == {LayoutForm.UNIFORM, LayoutForm.RAGGED}
    assert {key.requests for key in keys if key.mode is Mode.DECODE} == {1, 2, 4}


@given(
    requests=st.integers(1, 64),
    width=st.integers(2, 16),
    shares=st.lists(st.floats(0.01, 1.0), max_size=4),
)
def test_ragged_tiers_hold_every_anchor_and_the_full_batch(
    requests: int, width: int, shares: list[float]
) -> None:
    tiers = ragged_tiers(requests, width, shares)
    assert tiers[-1] == requests * width
    assert tiers[0] >= requests
    assert list(tiers) == sorted(set(tiers))
