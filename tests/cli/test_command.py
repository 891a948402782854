"""The ``dspark`` command in a process of its own: output, exit status, records."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dspark_factory.results import Status, read_record
from tests.conftest import Dspark

PLAN = ("task=plan", "model=v4_flash", "speculative=dspark")


def error_lines(finished: subprocess.CompletedProcess[str]) -> list[str]:
    lines = finished.stderr.splitlines()
    assert "Traceback" not in finished.stderr
    return [line for line in lines if line.startswith("error: ")]


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("record.json"))


def test_plan_prints_tables_and_keeps_a_record(dspark: Dspark, tmp_path: Path) -> None:
    finished = dspark(*PLAN)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    for part in (
        "extend_seq_lens",
        "sampling_inputs",
        "decoding is greedy",
        "target_verify/uniform 4x6",
        "KV state",
    ):
        assert part in finished.stdout
    assert "\x1b" not in finished.stdout
    (path,) = records(tmp_path)
    record = read_record(path)
    assert record.status is Status.OK
    assert record.config["requested"] == list(PLAN)
    assert record.effective["num_draft_tokens"] == 6


def test_json_output_is_one_document_and_equals_the_record(dspark: Dspark, tmp_path: Path) -> None:
    finished = dspark(*PLAN, "output=json")
    document = json.loads(finished.stdout)
    (path,) = records(tmp_path)
    assert document == json.loads(path.read_text())
    assert document["status"] == "ok"
    assert document["nbytes"] == sum(buffer["nbytes"] for buffer in document["buffers"])
    assert document["gates"]["sampling_inputs"] == {"enabled": False, "reason": "decoding is greedy"}
    assert document["measurements"]["kv"]["nbytes_per_token"] > 0


def test_logs_go_to_stderr(dspark: Dspark) -> None:
    finished = dspark(*PLAN, "speculative.block_size=7", "output=json")
    assert json.loads(finished.stdout)["effective"]["block_size"] == 7
    assert finished.stderr.count("WARNING") == 1
    assert "trained for 5" in finished.stderr


@pytest.mark.parametrize(
    "overrides",
    [
        ("speculative.num_draft_token=5",),
        ("+speculative.num_draft_token=5", "device.kind=gpu"),
        ("model=null",),
        ("a b", "x=[1,"),
        ("~model",),
        ("hydra/launcher=none_such",),
        ("-m", "speculative.num_draft_tokens=2,None"),
        ("-m", "model=tiny,v4flash"),
        ("--config-name", "no_such_config"),
        ("--cfg", "job", "model=v4flash"),
    ],
)
def test_a_bad_command_line_is_refused_without_a_traceback(
    dspark: Dspark, overrides: tuple[str, ...]
) -> None:
    finished = dspark(*overrides, "task=plan")
    assert finished.returncode == 2
    assert error_lines(finished) == finished.stderr.splitlines()
    assert error_lines(finished)
    assert finished.stdout == ""


def test_the_full_error_is_shown_to_who_asks_for_it(dspark: Dspark) -> None:
    finished = dspark("model=v4flash", HYDRA_FULL_ERROR="1")
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: model=v4flash")
    assert "Traceback" in finished.stderr


def test_a_refused_job_keeps_a_record_with_all_reasons(dspark: Dspark, tmp_path: Path) -> None:
    finished = dspark(
        "task=plan", "speculative.num_draft_tokens=1", "pipeline.page_tokens=100", "output=json"
    )
    assert finished.returncode == 2
    assert len(error_lines(finished)) == 2
    document = json.loads(finished.stdout)
    assert document["status"] == "refused"
    assert [f"error: {line}" for line in document["failure"].splitlines()] == error_lines(finished)
    assert document["config"]["full"] is None
    assert document["buffers"] == []
    (path,) = records(tmp_path)
    assert read_record(path).status is Status.REFUSED


def test_what_the_plan_refuses_is_refused_like_a_rule(dspark: Dspark, tmp_path: Path) -> None:
    finished = dspark("task=plan", "device.memory_gib=0.001")
    assert finished.returncode == 2
    assert "device.memory_gib=0.001" in error_lines(finished)[0]
    record = read_record(records(tmp_path)[0])
    assert record.status is Status.REFUSED
    assert record.config["full"]["device"]["memory_gib"] == 0.001


def test_a_multirun_keeps_going_and_every_job_has_a_record(dspark: Dspark, tmp_path: Path) -> None:
    """Field report 51: a failed job tells its reasons, leaves a record and does not stop the others."""
    finished = dspark("-m", "task=plan", "speculative.num_draft_tokens=null,1,3")
    assert finished.returncode == 2
    assert len(error_lines(finished)) == 1
    statuses = [read_record(path).status for path in records(tmp_path)]
    assert statuses == [Status.OK, Status.REFUSED, Status.OK]


def test_an_unwritable_output_folder_is_named(dspark: Dspark, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    finished = dspark("task=plan", "hydra.run.dir=taken/inner")
    assert finished.returncode == 2
    assert "taken" in error_lines(finished)[0]


@pytest.mark.parametrize("chdir", ["true", "false"])
@pytest.mark.parametrize("multirun", [(), ("-m",)], ids=["single", "multirun"])
def test_relative_paths_begin_where_the_command_was_started(
    dspark: Dspark, tmp_path: Path, chdir: str, multirun: tuple[str, ...]
) -> None:
    """Field report 55: the same absolute path, whatever hydra.job.chdir is, single and multirun."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "mine.txt").write_text("hello\n")
    finished = dspark(
        *multirun, "task=plan", "workload.file=prompts/mine.txt", f"hydra.job.chdir={chdir}", "output=json"
    )
    assert finished.returncode == 0, finished.stderr
    workload: dict[str, Any] = json.loads(finished.stdout)["config"]["full"]["workload"]
    assert workload["file"] == str(tmp_path / "prompts" / "mine.txt")


def test_a_relative_checkpoint_gives_its_trained_block_size_in_another_folder(
    dspark: Dspark, tmp_path: Path
) -> None:
    """Field report 55: the default that is read from a checkpoint follows the same path."""
    from dspark_factory.config.model_shape import checkpoint_folder

    stated = json.loads((checkpoint_folder("tiny") / "config.json").read_text())
    stated |= {"dspark_block_size": 3, "dspark_target_layer_ids": [1], "dspark_markov_rank": 8}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(stated))
    finished = dspark(
        "task=plan", "model=checkpoint", "model.checkpoint=mine", "hydra.job.chdir=true", "output=json"
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["effective"]["num_draft_tokens"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--help",), "v4_flash"),
        (("--cfg", "job", "-p", "speculative"), "num_draft_tokens"),
        (("--info", "searchpath"), "pkg://dspark_factory.conf"),
    ],
)
def test_hydras_own_questions_are_answered(dspark: Dspark, arguments: tuple[str, ...], words: str) -> None:
    finished = dspark(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert words in finished.stdout


def test_tab_completion_knows_groups_and_options(dspark: Dspark) -> None:
    asked = "dspark model="
    finished = dspark("-sc", "query=bash", COMP_LINE=asked, COMP_POINT=str(len(asked)))
    assert finished.stdout.split() == ["model=checkpoint", "model=tiny", "model=v4_flash", "model=v4_pro"]
    asked = "dspark speculative.num_draft"
    finished = dspark("-sc", "query=bash", COMP_LINE=asked, COMP_POINT=str(len(asked)))
    assert finished.stdout.split() == ["speculative.num_draft_tokens="]
