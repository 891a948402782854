"""What becomes of a job whose task prints, breaks, refuses or is interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_factory.results import Record, Status, read_record

PROGRAM = """
import sys
from dspark_factory import errors
from dspark_factory.tasks import TASKS

TASKS["plan"] = "{module}:run"
sys.argv = ["dspark", "task=plan", *sys.argv[1:]]
from dspark_factory.cli import main
sys.exit(main())
"""
TASK = """
import logging
from dspark_factory import errors

def run(config, record, console):
    with record.stage("first"):
        print("stray")
        console.print("[b]result[/b]")
    record.accept_length = 2.5
    {body}
"""


def run_task(folder: Path, body: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Record]:
    (folder / "own_task.py").write_text(TASK.format(body=body))
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module="own_task"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (path,) = folder.rglob("record.json")
    return finished, read_record(path)


def test_a_task_prints_on_stdout_and_fills_the_record(tmp_path: Path) -> None:
    finished, record = run_task(tmp_path, "return None")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["stray", "result"]
    assert record.status is Status.OK
    assert record.accept_length == 2.5
    assert [stage.name for stage in record.stages] == ["first"]


def test_with_json_output_nothing_else_reaches_stdout(tmp_path: Path) -> None:
    finished, record = run_task(tmp_path, "logging.warning('careful')", "output=json")
    assert json.loads(finished.stdout) == record.to_plain()
    assert "stray" in finished.stderr
    assert "careful" in finished.stderr
    assert "result" not in finished.stderr


@pytest.mark.parametrize(
    "error", ["TaskError('no prompt; give one')", "CapacityError('no prompt; give one')"]
)
def test_a_task_that_fails_on_purpose_prints_its_message(tmp_path: Path, error: str) -> None:
    finished, record = run_task(tmp_path, f"raise errors.{error}")
    assert finished.returncode == 2
    assert finished.stderr == "error: no prompt; give one\n"
    assert (record.status, record.failure) == (Status.FAILED, "no prompt; give one")
    assert record.accept_length == 2.5


def test_a_task_that_refuses_its_configuration_prints_every_reason(tmp_path: Path) -> None:
    finished, record = run_task(tmp_path, "raise errors.ConfigError(['one', 'two'])")
    assert finished.returncode == 2
    assert finished.stderr == "error: one\nerror: two\n"
    assert (record.status, record.failure) == (Status.REFUSED, "one\ntwo")


def test_a_task_that_breaks_shows_where_and_keeps_its_record(tmp_path: Path) -> None:
    finished, record = run_task(tmp_path, "{}['missing']")
    assert finished.returncode == 1
    assert "own_task.py" in finished.stderr
    assert "KeyError: 'missing'" in finished.stderr
    assert (record.status, record.failure) == (Status.FAILED, "KeyError: 'missing'")


def test_an_interrupted_task_ends_with_one_line(tmp_path: Path) -> None:
    finished, record = run_task(tmp_path, "raise KeyboardInterrupt")
    assert finished.returncode == 130
    assert finished.stderr == "interrupted\n"
    assert (record.status, record.failure) == (Status.FAILED, "interrupted")
