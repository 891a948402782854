"""The ``dspark-report`` command in a process of its own: what it prints, writes and refuses."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_factory.results import write_record
from tests.reporting.sweep_records import (
    batch,
    calibration,
    job_record,
    write_sweep,
    write_troubled_sweep,
)

FIGURES = {"tokens-per-second", "accept-length", "pareto", "nbytes", "conditional-acceptance"}


def report(*arguments: str | Path, blocked: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command; packages that are ``blocked`` are as good as not installed."""
    start = "".join(f"sys.modules[{name!r}] = None;" for name in blocked)
    command = ["-c", f"import sys;{start}from dspark_factory.report_cli import main;sys.exit(main())"]
    return subprocess.run(
        [
            sys.executable,
            *(command if blocked else ["-m", "dspark_factory.report_cli"]),
            *map(str, arguments),
        ],
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_good_sweep_gets_tables_files_and_status_0(tmp_path: Path) -> None:
    write_sweep(tmp_path, [None, 3, 5], [1, 8])
    finished = report(tmp_path, "--parquet")
    assert (finished.returncode, finished.stderr) == (0, "")
    written = {path.name for path in tmp_path.iterdir() if path.is_file()}
    figures = {f"report-{name}.svg" for name in FIGURES}
    assert written == {"report.csv", "report.html", "report.parquet"} | figures
    assert "Recommendation" in finished.stdout
    assert "figures show" not in finished.stdout  # they show everything
    before = (tmp_path / "report.html").read_text()
    assert report(tmp_path).returncode == 0
    assert (tmp_path / "report.html").read_text() == before


def test_a_troubled_sweep_is_reported_whole_with_status_1(tmp_path: Path) -> None:
    sweep, out = tmp_path / "sweep", tmp_path / "new" / "out"
    write_troubled_sweep(sweep)
    before = sorted(sweep.rglob("*"))
    finished = report(sweep, "--out", out)
    assert (finished.returncode, finished.stderr) == (1, "")
    assert sorted(sweep.rglob("*")) == before
    page, table = (out / "report.html").read_text(), (out / "report.csv").read_text()
    for text in (finished.stdout, page, table):
        for words in ("CUDA is out of memory", "running", "num_draft_tokens=6 took no effect"):
            assert words in text
    for text in (finished.stdout, page):
        assert "job 7 (unreadable)" in text


def test_what_figures_leave_out_is_told(tmp_path: Path) -> None:
    for job, speed in (("0", 1.0), ("1", 1.1), ("2", 1.2)):
        batches = [batch(size, 5, speed=speed) for size in range(1, 15)]
        calibrated = calibration(3 if job == "2" else 2) if job != "0" else None
        write_record(job_record(5, batches, calibrated=calibrated), tmp_path / job)
    shown = "10 of 14 batch sizes, the fastest job of each count, one of 2 calibrations (job 2)"
    line = f"figures show {shown}; the table has every job and batch size"
    assert line in report(tmp_path).stdout.splitlines()
    assert f"They show {shown}; the table below has" in (tmp_path / "report.html").read_text()
    for name, words in {
        "tokens-per-second": "Shows 10 of 14 batch sizes, the fastest job of each count",
        "conditional-acceptance": "Shows the fastest job of each count",
        "calibration": "Shows one of 2 calibrations (job 2)",
    }.items():
        assert f">{words}<" in (tmp_path / f"report-{name}.svg").read_text()
    assert "Shows" not in (tmp_path / "report-nbytes.svg").read_text()
    assert "figures show" not in report(tmp_path, "--no-files").stdout


def test_figures_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    sweep, out = tmp_path / "sweep", tmp_path / "out"
    write_record(job_record(5, [batch(8, 5)], calibrated=calibration(4)), sweep / "0")
    report(sweep, "--out", out)
    foreign = ("report-mine.svg", "report-pareto.svg.bak", "pareto.svg")
    for name in foreign:
        (out / name).write_text("mine")
    write_record(job_record(5, ()), sweep / "0")
    finished = report(sweep, "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "report.csv", "report.html", "report-nbytes.svg", *foreign,
    }  # fmt: skip
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("removed")]
    assert line == (
        f"removed figures of an earlier report from {out}: report-tokens-per-second.svg, report-accept-length.svg, "
        "report-pareto.svg, report-conditional-acceptance.svg, report-calibration.svg"
    )
    assert "removed" not in report(sweep, "--out", out).stdout


def test_a_thousand_records_take_less_than_three_seconds(tmp_path: Path) -> None:
    for number in range(1000):
        count = (None, *range(2, 17))[number % 16]
        batches = [batch(size, count) for size in (1, 8, 32)]
        for item in batches:
            item["baseline_tokens_per_second"] = item["tokens_per_second"]
        write_record(job_record(count, batches), tmp_path / str(number))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = report(tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (finished.returncode, finished.stderr) == (0, "")
    # Of the processor, because other tests run beside this one.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3


def test_nothing_is_written_on_request(tmp_path: Path) -> None:
    write_sweep(tmp_path, [None, 3], [8])
    assert report(tmp_path, "--no-files").returncode == 0
    assert not list(tmp_path.glob("report*"))


@pytest.mark.parametrize(
    ("blocked", "words", "missing"),
    [
        ("matplotlib", "figures need matplotlib: pip install 'dspark-factory[plots]'", "*.svg"),
        ("jinja2", "the page needs jinja2: pip install 'dspark-factory[report]'", "*.html"),
    ],
)
def test_without_a_package_the_rest_works(tmp_path: Path, blocked: str, words: str, missing: str) -> None:
    write_sweep(tmp_path, [None, 3], [8])
    finished = report(tmp_path, blocked=(blocked,))
    assert (finished.returncode, finished.stderr) == (0, "")
    assert words in finished.stdout.splitlines()
    assert not list(tmp_path.glob(missing))
    for pattern in {"*.svg", "*.html", "*.csv"} - {missing}:
        assert list(tmp_path.glob(pattern))


def test_parquet_without_pyarrow_is_refused_after_the_rest(tmp_path: Path) -> None:
    write_sweep(tmp_path, [None, 3], [8])
    finished = report(tmp_path, "--parquet", blocked=("pyarrow",))
    assert finished.returncode == 2
    assert finished.stderr == "error: Parquet needs pyarrow: pip install 'dspark-factory[parquet]'\n"
    assert (tmp_path / "report.html").exists()


def test_two_sweeps_are_compared(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", [None, 3, 5], [8])
    write_sweep(tmp_path / "b", [None, 3, 7], [8], speed=1.2)
    finished = report("--compare", tmp_path / "a", tmp_path / "b")
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in finished.stdout.splitlines()]
    assert sum(line.endswith("1.200 faster") for line in lines) == 2
    assert sum(line.endswith("only in A") for line in lines) == 1
    assert sum(line.endswith("only in B") for line in lines) == 1
    backwards = report("--compare", tmp_path / "b", tmp_path / "a").stdout
    assert backwards.count("slower") == 2
    assert report("--compare", tmp_path / "a", tmp_path / "b", "--tie", "0.3").stdout.count("same") == 2
    assert not list(tmp_path.rglob("report*"))


def test_comparing_with_a_troubled_sweep_names_its_jobs(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", [None, 3], [8])
    write_troubled_sweep(tmp_path / "b")
    finished = report("--compare", tmp_path / "a", tmp_path / "b")
    assert finished.returncode == 1
    assert "left out: B, job 4 (failed): CUDA is out of memory" in finished.stdout
    assert "left out: B, job 7 (unreadable)" in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing",), "is no folder"),
        (("empty",), "holds no record.json"),
        (("--compare", "empty", "missing"), "holds no record.json"),
        (("sweep", "--out", "sweep/0/record.json"), "cannot write the report into"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    write_sweep(tmp_path / "sweep", [None], [8])
    given = [argument if argument.startswith("-") else tmp_path / argument for argument in arguments]
    finished = report(*given)
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


@pytest.mark.parametrize(
    "arguments", [(), ("x", "--tie", "2"), ("x", "--noise-limit", "nan"), ("x", "--compare", "a", "b")]
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...]) -> None:
    finished = report(*arguments)
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    assert "dspark-report: error: " in finished.stderr


def test_help_teaches_with_examples() -> None:
    finished = report("--help")
    assert finished.returncode == 0
    for words in ("dspark-report DIR --out report --parquet", "--compare BEFORE AFTER", "Exit status"):
        assert words in finished.stdout


def test_importing_it_is_light() -> None:
    code = (
        "import sys, dspark_factory.report_cli;"
        "heavy = {'torch', 'transformers', 'matplotlib', 'jinja2', 'pyarrow'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
