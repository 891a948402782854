"""``task=recommend`` as a user runs it: two files in, a schedule out, no model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from dspark_factory.results import Status, read_record
from tests.conftest import Dspark

COMMAND = ("task=recommend", "task.acceptance_log=mine/log.csv", "task.cost_table=mine/costs.csv")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    steps = [0] * 500 + [1] * 250 + [2] * 125 + [3] * 125
    (folder / "log.csv").write_text("accepted\n" + "".join(f"{step}\n" for step in steps))
    rows = [
        (1, "", 10),
        (1, 2, 10.5),
        (1, 4, 11),
        (1, 9, 12),
        (8, "", 10),
        (8, 2, 14),
        (8, 4, 25),
        (8, 9, 50),
    ]
    lines = ["requests,num_draft_tokens,milliseconds", *(",".join(map(str, row)) for row in rows)]
    (folder / "costs.csv").write_text("\n".join(lines))
    return folder


def test_a_table_and_a_schedule_that_the_plan_takes(dspark: Dspark, files: Path) -> None:
    finished = dspark(*COMMAND)
    assert finished.returncode == 0, finished.stderr
    for words in (
        "num_draft_tokens",
        "accept length",
        "left out: num_draft_tokens=9 verifies 8 drafts",
        "note: the cost table has no costs of drafting",
        "SGLang, num_draft_tokens 4: ",
        "--speculative-num-draft-tokens 4",
        '"num_speculative_tokens": 1',
    ):
        assert words in finished.stdout
    chosen = [line.split()[:2] for line in finished.stdout.splitlines() if "recommended" in line]
    assert chosen == [["1", "4"], ["8", "2"]]
    (line,) = (line for line in finished.stdout.splitlines() if line.startswith("decode by it: "))
    assert "speculative.schedule=" in line
    planned = dspark("task=plan", "output=json", "pipeline.max_requests=8", *shlex.split(line)[4:])
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["effective"]["num_draft_tokens"] == 4


def test_the_record_holds_the_recommendation(dspark: Dspark, files: Path, tmp_path: Path) -> None:
    finished = dspark(*COMMAND, "hydra.job.chdir=true", "output=json")
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert document["config"]["full"]["task"]["acceptance_log"] == str(files / "log.csv")
    assert document["config"]["full"]["task"]["cost_table"] == str(files / "costs.csv")
    found = document["measurements"]["recommendation"]
    assert found["schedule"] == {"1": 4, "8": 2}
    assert [choice["num_draft_tokens"] for choice in found["choices"]] == [4, 2]
    assert found["choices"][0]["gain"] == pytest.approx(1.875 / 1.1, rel=0.02)
    assert len(found["predicted"]) == 6
    assert len(found["left_out"]) == 1
    (path,) = tmp_path.rglob("record.json")
    assert read_record(path).status is Status.OK


def test_batches_below_the_smallest_timed_one_are_scheduled_too(dspark: Dspark, files: Path) -> None:
    (files / "costs.csv").write_text("requests,num_draft_tokens,milliseconds\n4,1,10\n4,4,30\n")
    finished = dspark(*COMMAND)
    assert finished.returncode == 0, finished.stderr
    assert "note: batches of fewer than 4 requests have no choice of their own" in finished.stdout
    assert "decode by it: dspark speculative=off" in finished.stdout
    assert "SGLang, num_draft_tokens off: (no --speculative-algorithm)" in finished.stdout


def test_files_that_cannot_be_used_are_refused_together(dspark: Dspark, files: Path) -> None:
    (files / "log.csv").unlink()
    (files / "costs.csv").write_text("requests\n1\n")
    finished = dspark(*COMMAND)
    assert finished.returncode == 2
    errors = finished.stderr.splitlines()
    assert [line.split(": ")[:2] for line in errors] == [
        ["error", "task.acceptance_log"],
        ["error", "task.cost_table"],
    ]
    assert str(files / "log.csv") in errors[0]


def test_both_options_are_asked_for(dspark: Dspark) -> None:
    finished = dspark("task=recommend")
    assert finished.returncode == 2
    assert [line.split()[1] for line in finished.stderr.splitlines()] == [
        "task.acceptance_log",
        "task.cost_table",
    ]


def test_a_gap_in_the_cost_table_is_an_error(dspark: Dspark, files: Path) -> None:
    (files / "costs.csv").write_text(
        "requests,num_draft_tokens,milliseconds\n1,4,10\n1,9,10\n8,2,30\n8,9,30\n"
    )
    finished = dspark(*COMMAND)
    assert finished.returncode == 2
    assert "1 requests lack num_draft_tokens=2; 8 requests lack num_draft_tokens=4" in finished.stderr
