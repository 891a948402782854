"""From ``dspark-plugins new`` to a captured run, in an environment of its own, and back to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.registry.installing import CleanEnvironment, run

pytest.importorskip("hatchling")

SELECTED = ("buffers=[default,accept_trace]", "+accept_trace=deep", "buffers.accept_trace.depth=128")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return CleanEnvironment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def distributions(clean: CleanEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    clean.plugins("new", "accept_trace", "--into", folder, cwd=folder)
    clean.plugins("new", "few_rows", "--backend", "--into", folder, cwd=folder)
    return folder


def planned(clean: CleanEnvironment, cwd: Path, *overrides: str) -> dict:
    return json.loads(clean.dspark("task=plan", "output=json", *overrides, cwd=cwd).stdout)


def trace_nbytes(document: dict) -> int:
    return sum(buffer["nbytes"] for buffer in document["buffers"] if buffer["provider"] == "accept_trace")


def test_a_new_plugin_is_installed_used_captured_and_removed(
    clean: CleanEnvironment, distributions: Path, tmp_path: Path
) -> None:
    """Field report 53: the same listing from a wheel and from an editable install; a removed plugin is gone."""
    before = clean.plugins("list", cwd=tmp_path), planned(clean, tmp_path)["buffers"]
    assert "accept_trace" not in before[0]
    listings, plans = [], []
    for editable in ((), ("-e",)):
        clean.pip("install", *editable, distributions / "dspark-accept-trace")
        listings.append(clean.plugins("list", "--json", cwd=tmp_path))
        plans.append(planned(clean, tmp_path, *SELECTED)["buffers"])
        assert "accept_trace" in clean.dspark("--info", "searchpath", cwd=tmp_path).stdout
        if editable:
            break
        clean.pip("uninstall", "-y", "dspark-accept-trace")
    assert listings[0] == listings[1]
    assert plans[0] == plans[1]
    (listed,) = (item for item in json.loads(listings[0]) if item["name"] == "accept_trace")
    assert listed["config_groups"] == ["accept_trace", "buffers"]
    assert (listed["distribution"], listed["error"]) == ("dspark-accept-trace", None)

    assert trace_nbytes(planned(clean, tmp_path, *SELECTED)) == 4 * 128 * 4
    assert trace_nbytes(planned(clean, tmp_path, *SELECTED, "speculative=off")) == 0
    assert planned(clean, tmp_path)["buffers"] == before[1]
    built = json.loads(clean.dspark("task=build", "output=json", *SELECTED, cwd=tmp_path).stdout)
    assert built["status"] == "ok"
    assert trace_nbytes(built) == 4 * 128 * 4
    assert {"capture", "freeze"} <= {stage["name"].lower() for stage in built["stages"]}

    clean.pip("uninstall", "-y", "dspark-accept-trace")
    assert (clean.plugins("list", cwd=tmp_path), planned(clean, tmp_path)["buffers"]) == before
    refused = clean.dspark("task=plan", SELECTED[0], cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "buffers has no 'accept_trace'" in refused.stderr


def test_a_new_backend_keeps_the_contract_and_is_chosen(
    clean: CleanEnvironment, distributions: Path, tmp_path: Path
) -> None:
    clean.pip("install", distributions / "dspark-few-rows")
    assert "few_rows: 0 of" in clean.plugins("check", "few_rows", cwd=tmp_path)
    document = planned(clean, tmp_path, "backend=few_rows", "+few_rows=small")
    assert [buffer["shape"][0] for buffer in document["buffers"] if buffer["name"] == "few_rows_output"]
    clean.pip("uninstall", "-y", "dspark-few-rows")


def test_a_new_provider_passes_the_check_and_its_own_tests(
    clean: CleanEnvironment, distributions: Path, tmp_path: Path
) -> None:
    clean.pip("install", distributions / "dspark-accept-trace")
    assert "accept_trace: 0 of" in clean.plugins("check", "accept_trace", cwd=tmp_path)
    own = distributions / "dspark-accept-trace/tests"
    done = run(clean.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", own, cwd=tmp_path)
    assert " passed" in done.stdout
    clean.pip("uninstall", "-y", "dspark-accept-trace")


def test_a_sweep_and_worker_processes_see_a_plugin(
    clean: CleanEnvironment, distributions: Path, tmp_path: Path
) -> None:
    clean.pip("install", distributions / "dspark-accept-trace")
    clean.dspark("-m", "task=plan", SELECTED[0], "buffers.accept_trace.depth=2,3", cwd=tmp_path)
    clean.dspark("-m", "task=plan", SELECTED[0], "+accept_trace=short,deep", cwd=tmp_path)
    worker = Path(__file__).with_name("worker_job.py")
    assert run(clean.python, worker, SELECTED[0], cwd=tmp_path).stdout.split() == ["[16,", "256]"]
    clean.pip("uninstall", "-y", "dspark-accept-trace")
    records = [json.loads(path.read_text()) for path in sorted(tmp_path.rglob("record.json"))]
    assert [trace_nbytes(record) // 16 for record in records] == [2, 3, 16, 256]
