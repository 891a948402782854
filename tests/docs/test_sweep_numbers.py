"""The benchmarks page's sweeps are what their records recommend, and one confirms the other."""

from __future__ import annotations

from pathlib import Path

from dspark_factory.reporting.sweep_summary import summarize
from dspark_factory.results import read_record
from dspark_factory.sweeps.recommend import Choice, Recommendation

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs/records/sweep-cpu"


def recommended(sweep: str) -> Recommendation:
    found = summarize(RECORDS / sweep).recommendation
    assert found is not None
    return found


def line(sweep: str, choice: Choice) -> str:
    speed = choice.tokens_per_second
    return (
        f"| {sweep} | {choice.requests} | {choice.num_draft_tokens} | {speed.median:.1f} | {speed.noise:.1%} | "
        f"{choice.gain:.2f} | {', '.join(map(str, choice.tied))} |"
    )


def test_the_table_comes_from_the_records():
    section = (ROOT / "docs/benchmarks.md").read_text().split("\n## Draft tokens on a CPU", 1)[1]
    for sweep in ("first", "second"):
        for choice in recommended(sweep).choices:
            assert line(sweep, choice) in section
        record = read_record(RECORDS / sweep / "0")
        assert record.started_at[:10] in section
        assert record.environment["versions"]["torch"] in section


def test_the_second_sweep_confirms_the_first_within_noise():
    for own, other in zip(recommended("first").choices, recommended("second").choices, strict=True):
        assert own.num_draft_tokens in (other.num_draft_tokens, *other.tied)
