"""Which count is recommended, which is left out, and when there is no answer."""

from __future__ import annotations

import pytest

from dspark_factory.results import Status
from dspark_factory.sweeps.recommend import Candidate, NoRecommendation, candidates_of, recommend
from dspark_factory.sweeps.rows import SweepRow
from dspark_factory.sweeps.spread import Spread


def candidate(num_draft_tokens: int | None, *speeds: float, requests: int = 1) -> Candidate:
    return Candidate(
        requests=requests,
        num_draft_tokens=num_draft_tokens,
        tokens_per_second=Spread(speeds),
        source=f"job {num_draft_tokens}",
    )


def test_of_counts_that_are_as_fast_the_smaller_is_taken() -> None:
    """Field report 62: 4 and 5 within one percent give 4, and the tie is told."""
    found = recommend([candidate(5, 100.9), candidate(4, 100.0), candidate(3, 90.0)])
    (choice,) = found.choices
    assert (choice.num_draft_tokens, choice.tied) == (4, (5,))
    assert recommend([candidate(5, 102.0), candidate(4, 100.0)]).choices[0].num_draft_tokens == 5


def test_a_noisy_count_is_dropped_and_named() -> None:
    """Field report 62: a fast median over scattered rounds recommends nothing."""
    found = recommend([candidate(4, 100.0, 101.0, 99.0), candidate(6, 60.0, 150.0, 220.0)])
    assert found.choices[0].num_draft_tokens == 4
    assert len(found.left_out) == 1
    assert "job 6 at 1 requests with num_draft_tokens=6" in found.left_out[0]
    with pytest.raises(NoRecommendation, match="every candidate is too noisy: job 6"):
        recommend([candidate(6, 60.0, 150.0, 220.0)])


def test_a_batch_size_that_lacks_a_count_is_an_error() -> None:
    """Field report 62: a missing measurement is not a slow one."""
    measured = [candidate(4, 100.0), candidate(None, 50.0), candidate(4, 400.0, requests=8)]
    with pytest.raises(NoRecommendation, match="8 requests lack speculation off"):
        recommend(measured)


def test_the_gain_is_over_speculation_off() -> None:
    found = recommend([candidate(None, 50.0), candidate(4, 100.0), candidate(6, 99.9)])
    assert found.choices[0].gain == 2
    assert recommend([candidate(4, 100.0)]).choices[0].gain is None


def test_the_schedule_names_the_first_batch_size_of_each_stretch() -> None:
    speeds = {1: (50, 100, 110), 2: (50, 100, 110), 8: (50, 100, 90), 32: (120, 100, 90)}
    candidates = [
        candidate(count, speed, requests=size)
        for size, row in speeds.items()
        for count, speed in zip((None, 4, 6), row, strict=True)
    ]
    assert recommend(candidates).schedule == {1: 6, 8: 4, 32: None}


def test_nothing_measured_says_what_to_run() -> None:
    with pytest.raises(NoRecommendation, match="nothing to recommend from"):
        recommend([])
    with pytest.raises(NoRecommendation, match="job 3 failed"):
        recommend([], ["job 3 failed"])


def row(job: str, count: int | None, speeds: tuple[float, ...], baseline: tuple[float, ...]) -> SweepRow:
    return SweepRow(
        job=job,
        task="measure",
        status=Status.OK,
        failure=None,
        without_effect=(),
        overrides=(),
        device=None,
        requests=1,
        num_draft_tokens=count,
        tokens_per_second=Spread(speeds),
        baseline_tokens_per_second=Spread(baseline) if baseline else None,
    )


def test_a_machine_that_slows_down_between_jobs_decides_nothing() -> None:
    """Every job counts by its ratio to its own baseline: 6 gains 2.2 times, though it ran while all was slow."""
    rows = [
        row("0", None, (100.0, 101.0), ()),
        row("1", 4, (200.0, 100.0), (100.0, 50.0)),
        row("2", 6, (110.0, 112.2), (50.0, 51.0)),
        row("3", 8, (140.0, 142.8), (100.0, 102.0)),
    ]
    candidates, left_out = candidates_of(rows)
    assert not left_out
    (choice,) = recommend(candidates).choices
    assert choice.num_draft_tokens == 6
    assert choice.gain == pytest.approx(2.2)
    assert {item.num_draft_tokens: item.tokens_per_second.noise for item in candidates}[4] == 0
