"""Sweeps as users run them: real subprocesses, real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dspark_factory.results import Status, read_record
from dspark_factory.sweeps.rows import read_rows

DSPARK = [sys.executable, "-m", "dspark_factory"]
PLANS = ["-m", "hydra/launcher=process", "task=plan"]


def dspark(*arguments: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DSPARK, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, **options
    )


def statuses(folder: Path) -> dict[str, str]:
    return {path.parent.name: read_record(path).status.value for path in folder.glob("*/record.json")}


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the job's process in /proc")
def test_a_failed_and_a_killed_job_cost_the_sweep_nothing_else(tmp_path):
    """Field report 51: every outcome is on record, both failures are named, the exit status is 1."""
    command = [*DSPARK, "-m", "hydra/launcher=process", "task=build", "hydra.sweep.dir=sweep"]
    command += ["speculative.num_draft_tokens=2,1000,3,4"]
    sweep = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert sweep.stderr is not None
    seen = ""
    for line in sweep.stderr:
        seen += line
        if line.startswith("job 2 began"):
            record = tmp_path / "sweep" / "2" / "record.json"
            while not record.exists():
                time.sleep(0.02)
            victims = [child for child in children(sweep.pid) if b"spawn_main" in cmdline(child)]
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
    printed = sweep.stdout.read() if sweep.stdout else ""
    assert sweep.wait(timeout=120) == 1
    assert statuses(tmp_path / "sweep") == {"0": "ok", "1": "refused", "2": "killed", "3": "ok"}
    assert "error: job 1: speculative.num_draft_tokens=1000 is beyond" in seen
    assert "error: job 2: killed by signal 9 (SIGKILL)" in seen
    assert re.search(r"3 of 4 jobs, about \d+:\d\d left", seen)
    assert "killed by signal 9" in printed
    assert "beyond the supported maximum" in printed
    rows, unreadable = read_rows(tmp_path / "sweep")
    assert [row.job for row in rows] == ["0", "1", "2", "3"]
    assert not unreadable


def cmdline(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def test_jobs_that_are_done_are_skipped_and_changed_ones_run_again(tmp_path):
    command = [*PLANS, "hydra.sweep.dir=sweep"]
    first = dspark(*command, "speculative.num_draft_tokens=2,3", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    before = read_record(tmp_path / "sweep/0").started_at
    again = dspark(*command, "speculative.num_draft_tokens=2,3,4", "output=json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "job 0 skipped" in again.stderr
    assert "job 1 skipped" in again.stderr
    assert "job 2 done" in again.stderr
    assert read_record(tmp_path / "sweep/0").started_at == before
    changed = dspark(
        *command, "speculative.num_draft_tokens=2,3", "pipeline.context_length=512", cwd=tmp_path
    )
    assert "skipped" not in changed.stderr
    assert read_record(tmp_path / "sweep/0").started_at != before


def test_fail_fast_starts_no_further_job_and_the_report_names_those(tmp_path):
    ran = dspark(
        *PLANS, "hydra.sweep.dir=sweep", "speculative.num_draft_tokens=1000,2,3", "hydra.launcher.fail_fast=true",
        cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 1
    assert statuses(tmp_path / "sweep") == {"0": "refused"}
    assert "2 jobs are not started" in ran.stderr
    _, unreadable = read_rows(tmp_path / "sweep")
    assert [(item.job, item.state) for item in unreadable] == [("1", "never started"), ("2", "never started")]


def test_a_knob_without_effect_marks_its_row_and_fails_the_sweep(tmp_path):
    """The shipped model carries no DSpark drafter, so its draft tokens come to nothing."""
    ran = dspark(
        *PLANS,
        "hydra.sweep.dir=sweep",
        "speculative=dspark",
        "speculative.num_draft_tokens=3,5",
        cwd=tmp_path,
    )
    assert ran.returncode == 1
    rows, _ = read_rows(tmp_path / "sweep")
    for row, count in zip(rows, (3, 5), strict=True):
        assert row.without_effect == (
            f"speculative.num_draft_tokens={count} took no effect: the job ran with none",
        )
    assert "took no effect" in ran.stdout


def test_two_sweeps_at_once_do_not_share_a_folder(tmp_path):
    runs = [
        subprocess.Popen(
            [*DSPARK, *PLANS, f"speculative.num_draft_tokens={count}"],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for count in (2, 3)
    ]  # fmt: skip
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    folders = sorted(path.parent for path in tmp_path.rglob("sweep.json"))
    assert len(folders) == 2
    counts = {read_record(folder / "0").effective["num_draft_tokens"] for folder in folders}
    assert counts == {2, 3}


def test_what_a_job_prints_lies_in_its_folder(tmp_path):
    ran = dspark(*PLANS, "hydra.sweep.dir=sweep", "speculative.num_draft_tokens=2", cwd=tmp_path)
    assert ran.returncode == 0
    assert "kv_pools" in (tmp_path / "sweep/0/job.log").read_text()
    manifest = json.loads((tmp_path / "sweep/sweep.json").read_text())
    assert manifest["jobs"][0]["overrides"] == ["task=plan", "speculative.num_draft_tokens=2"]


@pytest.mark.parametrize("preset", ["draft_tokens", "pareto", "buffers", "search"])
def test_every_preset_composes(preset, tmp_path):
    shown = dspark(f"+sweep={preset}", "--cfg", "hydra", "-p", "hydra.sweeper", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "speculative.num_draft_tokens" in shown.stdout


@pytest.mark.parametrize(
    ("package", "launcher", "options"),
    [
        ("hydra_plugins.hydra_joblib_launcher", "joblib_workers", []),
        ("hydra_plugins.hydra_submitit_launcher", "submitit_local", ["hydra.launcher.timeout_min=5"]),
        (
            "hydra_plugins.hydra_ray_launcher",
            "ray",
            ["+hydra.launcher.ray.init.num_cpus=1", "+hydra.launcher.ray.init.include_dashboard=false"],
        ),
    ],
)
def test_other_launchers_run_the_same_jobs(package, launcher, options, tmp_path):
    pytest.importorskip(package)
    ran = dspark(
        "-m", f"hydra/launcher={launcher}", "task=plan", "hydra.sweep.dir=sweep", *options,
        "speculative.num_draft_tokens=2,3", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    records = [read_record(tmp_path / "sweep" / name) for name in ("0", "1")]
    assert [record.status for record in records] == [Status.OK, Status.OK]
    assert [record.effective["num_draft_tokens"] for record in records] == [2, 3]


def test_a_search_maximises_what_jobs_return(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    ran = dspark(
        "-m", "+sweep=search", "hydra.sweep.dir=sweep", "hydra.sweeper.n_trials=2", "task.repeats=1",
        "task.requests=[1]", "workload.max_new_tokens=16", "workload.prompt=import os import os import os",
        "speculative.min_match=1", "pipeline.capture_requests=[1]", "pipeline.context_length=256", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = (tmp_path / "sweep/optimization_results.yaml").read_text()
    speeds = [
        row.tokens_per_second.median for row in read_rows(tmp_path / "sweep")[0] if row.tokens_per_second
    ]
    assert float(re.findall(r"best_value: ([\d.]+)", found)[0]) == pytest.approx(max(speeds))
