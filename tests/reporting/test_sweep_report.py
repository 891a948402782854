"""Reports of a sweep from its records: nothing is lost, and no value is more than text."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyarrow import parquet
from rich.console import Console

from dspark_factory.reporting.sweep_compare import compare, several_jobs
from dspark_factory.reporting.sweep_files import write_csv, write_parquet
from dspark_factory.reporting.sweep_page import sweep_page
from dspark_factory.reporting.sweep_plots import TITLES, figures, pareto_front
from dspark_factory.reporting.sweep_summary import SweepSummary, summarize
from dspark_factory.reporting.sweep_svg import COLOURS, standalone
from dspark_factory.reporting.sweep_table import print_sweep
from dspark_factory.results import RECORD_NAME, Status, write_record
from dspark_factory.sweeps.recommend import Candidate
from dspark_factory.sweeps.rows import read_rows
from dspark_factory.sweeps.spread import Spread
from tests.reporting.sweep_records import (
    HOSTILE,
    PROVIDERS,
    batch,
    calibration,
    job_record,
    write_sweep,
    write_troubled_sweep,
)

REASONS = (
    "CUDA is out of memory",
    "running: it did not say why",
    "speculative.num_draft_tokens=6 took no effect: the job ran with 5",
    "record.json is not JSON",
    "<b>no</b>",
)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> SweepSummary:
    folder = tmp_path_factory.mktemp("troubled")
    write_troubled_sweep(folder)
    return summarize(folder)


def printed(summary: SweepSummary, width: int = 160) -> str:
    stream = io.StringIO()
    print_sweep(summary, Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 100, 160])
def test_every_row_is_one_line_with_its_reason_at_any_width(troubled: SweepSummary, width: int) -> None:
    text = printed(troubled, width)
    for reason in REASONS:
        assert reason in text
    assert "\x1b" not in text
    head, _, _ = text.partition("Recommendation")
    for row in troubled.rows:
        assert any(line.startswith(row.job) and row.status.value in line for line in head.splitlines()) or (
            row.without_effect
        )
    tables = 1 if width == 160 else 2
    assert sum(line.startswith("3 ") for line in head.splitlines()) == 3 * tables


def test_the_recommendation_names_override_and_flags(troubled: SweepSummary) -> None:
    text = printed(troubled)
    assert "dspark 'speculative.schedule=" in text
    assert "--speculative-dspark-block-size 4 --speculative-num-draft-tokens 5" in text
    assert """--speculative-config '{"method": "dspark", "num_speculative_tokens": 6}'""" in text
    assert "3.13x" in text


def test_noise_leaves_a_candidate_out_and_says_so(tmp_path: Path) -> None:
    write_sweep(tmp_path, [None], [8])
    write_record(job_record(5, [batch(8, 5, noise=0.2)]), tmp_path / "noisy")
    assert "job noisy at 8 requests with num_draft_tokens=5: its rounds scatter" in printed(
        summarize(tmp_path)
    )


def test_without_batches_the_refusal_is_a_line(tmp_path: Path) -> None:
    write_record(job_record(5, ()), tmp_path)
    summary = summarize(tmp_path)
    assert "no recommendation: nothing to recommend from" in printed(summary)
    assert "There is none: nothing to recommend from" in sweep_page(summary, {})
    assert list(figures(summary.rows)) == ["nbytes"]


def test_csv_and_parquet_hold_the_same(troubled: SweepSummary, tmp_path: Path) -> None:
    write_csv(troubled.rows, tmp_path / "report.csv")
    write_parquet(troubled.rows, tmp_path / "report.parquet")
    with (tmp_path / "report.csv").open(encoding="utf-8", newline="") as stream:
        header, *lines = csv.reader(stream)
    table = parquet.read_table(tmp_path / "report.parquet")
    assert table.column_names == header
    assert len(lines) == len(troubled.rows) == table.num_rows
    for line, row in zip(lines, table.to_pylist(), strict=True):
        assert line == ["" if value is None else str(value) for value in row.values()]
    assert {"running", "failed", "refused", "ok"} == set(table.column("status").to_pylist())
    assert {f"nbytes.{provider}" for provider in PROVIDERS} <= set(header)
    assert {"conditional_acceptance_1", "conditional_acceptance_6"} <= set(header)
    assert table.schema.field("tokens_per_second_median").type == "double"
    off = table.to_pylist()[0]
    assert (off["speculation"], off["num_draft_tokens"]) == (False, None)


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_a_spreadsheet_gets_no_formula(tmp_path: Path, start: str) -> None:
    text = f"{start}HYPERLINK(1)"
    write_record(job_record(5, [batch(8, 5, speed=-1.0)]), tmp_path / text)
    rows, _ = read_rows(tmp_path)
    write_csv(rows, tmp_path / "report.csv")
    write_parquet(rows, tmp_path / "report.parquet")
    with (tmp_path / "report.csv").open(encoding="utf-8", newline="") as stream:
        (line,) = csv.DictReader(stream)
    assert line["job"] == f"'{text}"
    assert float(line["tokens_per_second_median"]) < 0  # numbers stay numbers
    assert parquet.read_table(tmp_path / "report.parquet").column("job").to_pylist() == [text]


def test_the_page_shows_every_job_and_reason_as_text(troubled: SweepSummary) -> None:
    page = sweep_page(troubled, figures(troubled.rows))
    shown = page.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&#39;", "'")
    for reason in REASONS:
        assert reason.removeprefix("running: ") in shown
    assert "at CAPTURE of verify/32" in page
    for item in [*troubled.rows, *troubled.unreadable]:
        assert item.job in shown
    assert "<script" not in page
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in page
    assert "flashinfer-python" in page
    assert "not installed" in page
    for title in TITLES.values():
        assert title in page


def test_the_page_asks_for_nothing(troubled: SweepSummary) -> None:
    page = sweep_page(troubled, figures(troubled.rows))
    assert set(re.findall(r"""\b\w+://[^\s"'<]*""", page)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert set(re.findall(r'xlink:href="(.)', page)) <= {"#"}
    assert not re.search(r"\s(src|on\w+)=|@import|url\((?!#)", page)


def test_figures_are_the_same_each_time_and_follow_the_page(troubled: SweepSummary) -> None:
    drawn = figures(troubled.rows)
    assert list(drawn) == list(TITLES)
    assert figures(troubled.rows) == drawn
    texts = [figure.svg for figure in drawn.values()]
    for svg in texts:
        for text in (svg, standalone(svg)):
            ElementTree.fromstring(text)
        assert svg.startswith('<svg fill="currentColor"')
        assert "#000000" not in svg
        assert "#ffffff" not in svg
    identifiers = [name for svg in texts for name in set(re.findall(r' id="([^"]+)"', svg))]
    assert len(identifiers) == len(set(identifiers))


def test_names_in_figures_are_text(tmp_path: Path) -> None:
    names = (HOSTILE, "$x_$", "_hidden", "a--><b>", "\x00\ud800")
    record = job_record(5, [batch(8, 5)], providers=names)
    (tmp_path / RECORD_NAME).write_text(json.dumps(record.to_plain()))  # escapes the half of a surrogate pair
    root = ElementTree.fromstring(figures(summarize(tmp_path).rows)["nbytes"].svg)
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {HOSTILE, "$x_$", " _hidden", "a--><b>"} <= texts
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_too_many_providers_and_sizes_are_gathered(tmp_path: Path) -> None:
    names = [f"provider_{index}" for index in range(14)]
    batches = [batch(size, 5) for size in range(1, 30)]
    write_record(job_record(5, batches, providers=names), tmp_path)
    drawn = figures(summarize(tmp_path).rows)
    assert ">others<" in drawn["nbytes"].svg
    assert len(re.findall(r">\d+ requests?<", drawn["tokens-per-second"].svg)) == len(COLOURS)


def labels_of(svg: str) -> list[str]:
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [text.text or "" for text in texts if (text.text or "").startswith("draft ")]


@pytest.mark.parametrize(
    ("positions", "drawn"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (6, (1, 3, 6)), (7, (1, 4, 7))]
)
def test_calibration_shows_first_middle_and_last_position(
    tmp_path: Path, positions: int, drawn: tuple[int, ...]
) -> None:
    write_record(job_record(9, [batch(8, 9)], calibrated=calibration(positions)), tmp_path)
    figure = figures(summarize(tmp_path).rows)["calibration"]
    wanted = [f"draft {at} before, ECE {0.08 / at:.3f}" for at in drawn]
    wanted += [f"draft {at} after, ECE {0.01 / at:.3f}" for at in drawn]
    assert labels_of(figure.svg) == wanted
    assert not figure.left_out


def test_calibration_of_a_job_without_batches_and_without_scaling(tmp_path: Path) -> None:
    measured = calibration(3)
    for item in measured["positions"]:
        del item["bins_after"], item["ece_after"]
        item["ece_before"] = None
    measured["positions"][2]["bins"] = []
    write_record(job_record(9, (), calibrated=measured), tmp_path)
    drawn = figures(summarize(tmp_path).rows)
    assert list(drawn) == ["nbytes", "calibration"]
    assert labels_of(drawn["calibration"].svg) == ["draft 1 before", "draft 2 before"]


def test_without_a_calibration_nothing_is_drawn(tmp_path: Path) -> None:
    write_sweep(tmp_path, [None, 3], [8])
    empty: dict[str, Any] = {"positions": [{"position": 1, "bins": []}]}
    write_record(job_record(5, [batch(8, 5)], calibrated=empty), tmp_path / "2")
    write_record(
        job_record(7, [batch(8, 7)], calibrated=calibration(2), status=Status.FAILED), tmp_path / "3"
    )
    assert "calibration" not in figures(summarize(tmp_path).rows)


@pytest.mark.parametrize(
    ("calibrated", "reason"),
    [
        ([1], "list indices must be integers"),
        ({"positions": [{"position": "1"}]}, "calibration position is '1', no whole number"),
        ({"positions": [{"position": 1, "ece_before": "0"}]}, "calibration ece_before is '0', no number"),
        (
            {"positions": [{"position": 1, "bins": [{"predicted": 1.5, "observed": 1, "count": 1}]}]},
            "calibration predicted is 1.5, no share from 0 to 1",
        ),
        ({"positions": [{"position": 1, "bins": [{"predicted": 1}]}]}, "'observed'"),
    ],
)
def test_a_malformed_calibration_is_a_reason(tmp_path: Path, calibrated: Any, reason: str) -> None:
    write_record(job_record(5, [batch(8, 5)], calibrated=calibrated), tmp_path)
    rows, (unreadable,) = read_rows(tmp_path)
    assert not rows
    assert "holds values of the wrong type" in unreadable.reason
    assert reason in unreadable.reason


def test_every_record_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sweep(tmp_path, [None, 3, 5], [1, 8])
    read: list[Path] = []
    original = Path.read_text

    def read_text(path: Path, *args: Any, **options: Any) -> str:
        read.append(path)
        return original(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", read_text)
    summary = summarize(tmp_path)
    assert [path.parent.name for path in read if path.name == RECORD_NAME] == ["0", "1", "2"]
    assert summary.environment["torch"] == {"2.13.0": 3}


@pytest.mark.parametrize("page", [0.0, 0.0089])  # luminance from white and from the dark page
def test_colours_are_seen_on_both_pages(page: float) -> None:
    page = 1.0 if page == 0.0 else page
    for colour in COLOURS:
        shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        bright, dark = max(luminance, page), min(luminance, page)
        assert (bright + 0.05) / (dark + 0.05) >= 3, colour


def test_the_front_is_what_nothing_beats() -> None:
    points = [(1.0, 9.0), (2.0, 9.0), (3.0, 5.0), (2.5, 4.0), (4.0, 1.0), (4.0, 0.5)]
    assert pareto_front(points) == [4, 2, 1]


def candidate(requests: int, count: int | None, *values: float) -> Candidate:
    return Candidate(
        requests=requests, num_draft_tokens=count, tokens_per_second=Spread(values), source="job 0"
    )


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((100.0,), (100.9,), "same"),
        ((100.0,), (99.1,), "same"),
        ((100.0,), (102.0,), "faster"),
        ((100.0,), (98.0,), "slower"),
        ((90.0, 100.0, 110.0), (104.0,), "same"),
        ((104.0,), (90.0, 100.0, 110.0), "same"),
        ((0.0,), (1.0,), "A has no speed"),
    ],
)
def test_a_verdict_needs_more_than_the_noise(
    before: tuple[float, ...], after: tuple[float, ...], verdict: str
) -> None:
    (compared,) = compare([candidate(8, 5, *before)], [candidate(8, 5, *after)])
    assert compared.verdict == verdict


def test_only_equal_sizes_and_counts_are_compared() -> None:
    before = [candidate(8, 5, 1.0), candidate(8, 5, 3.0), candidate(8, None, 1.0)]
    after = [candidate(8, 5, 3.0), candidate(16, 5, 1.0)]
    compared = [(item.requests, item.num_draft_tokens, item.verdict) for item in compare(before, after)]
    assert compared == [(8, None, "only in A"), (8, 5, "same"), (16, 5, "only in B")]
    assert several_jobs(before) == ["1 slower of 2 jobs at 8 requests with num_draft_tokens 5"]
