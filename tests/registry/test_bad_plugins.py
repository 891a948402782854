"""Installed plugins that cannot be used stop nobody who does not ask for them, and each says why."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.registry.installing import run, write_bad_plugins, write_installed

REASONS = {
    "no_import": "raised ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
    "twin": "dspark-twin-a 0.7 and dspark-twin-b 0.7 both declare 'twin', so neither is used",
    "outdated": "made for contract version 0, this is 1",
    "no_conf": "configuration package 'dspark_no_conf.conf' does not exist",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write_bad_plugins(folder)
    return folder


def command(module: str, *arguments: str, site: Path, cwd: Path, check: bool = True, **environment: str):
    return run(
        sys.executable, "-m", module, *arguments, cwd=cwd, check=check, PYTHONPATH=str(site), **environment
    )


def listing(site: Path, cwd: Path, **environment: str) -> dict[str, dict]:
    document = command(
        "dspark_factory.plugins_cli", "list", "--json", site=site, cwd=cwd, **environment
    ).stdout
    return {item["name"]: item for item in json.loads(document)}


@pytest.mark.parametrize(
    "arguments", [("--help",), ("task=plan",), ("workload.max_new_tokens=8",)], ids=" ".join
)
def test_nobody_is_stopped_who_does_not_ask(site: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Field report 53: a provider that fails on import does not stop the others."""
    finished = command("dspark_factory", *arguments, site=site, cwd=tmp_path)
    assert "error" not in finished.stderr
    assert "Traceback" not in finished.stderr


def test_the_listing_explains_each(site: Path, tmp_path: Path) -> None:
    """Field report 53: a provider that fails on import is listed as broken, with source and version."""
    listed = listing(site, tmp_path)
    for name, words in REASONS.items():
        assert words in listed[name]["error"]
        assert listed[name]["version"] == "0.7"
    assert (
        "gate() of plugin 'bad_gate' (dspark-bad-gate 0.7) failed: ValueError" in listed["bad_gate"]["error"]
    )
    assert listed["kv_pools"] == {
        "name": "kv_pools",
        "kind": "buffers",
        "distribution": "dspark-factory",
        "version": listed["reference"]["version"],
        "config_groups": ["buffers"],
        "error": None,
    }
    text = command("dspark_factory.plugins_cli", "list", site=site, cwd=tmp_path).stdout
    assert all(words in text for words in REASONS.values())


@pytest.mark.parametrize("name", [*REASONS, "bad_gate"])
def test_whoever_asks_is_told_the_reason(site: Path, tmp_path: Path, name: str) -> None:
    words = (
        REASONS.get(name)
        or "gate() of plugin 'bad_gate' (dspark-bad-gate 0.7) failed: ValueError: the gate is"
    )
    finished = command(
        "dspark_factory", "task=plan", f"buffers=[default,{name}]", site=site, cwd=tmp_path, check=False
    )
    assert finished.returncode == 2
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_a_checked_plugin_that_cannot_be_used_is_explained(site: Path, tmp_path: Path) -> None:
    finished = command(
        "dspark_factory.plugins_cli", "check", "outdated", site=site, cwd=tmp_path, check=False
    )
    assert finished.returncode == 2
    assert REASONS["outdated"] in finished.stderr


def test_tracing_lets_the_exception_through(site: Path, tmp_path: Path) -> None:
    finished = command(
        "dspark_factory.plugins_cli", "list", site=site, cwd=tmp_path, check=False, DSPARK_TRACE_PLUGINS="1"
    )
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in finished.stderr


def test_the_allow_list_restricts_third_parties(tmp_path: Path) -> None:
    site = tmp_path / "site"
    marker = tmp_path / "imported"
    write_installed(site, "dspark-good", "good")
    write_installed(site, "dspark-nosy", "nosy", module=f"open({str(marker)!r}, 'w')")
    listed = listing(site, tmp_path, DSPARK_PLUGINS="good,nobody")
    assert not marker.exists()
    assert listed["good"]["error"] is None
    assert listed["kv_pools"]["error"] is None
    assert "DSPARK_PLUGINS=good,nobody does not name it" in listed["nosy"]["error"]
    assert "no installed distribution declares it" in listed["nobody"]["error"]
    assert "does not name it" in listing(site, tmp_path, DSPARK_PLUGINS="")["good"]["error"]
    assert "not a BufferPlugin" not in str(listing(site, tmp_path)["good"])


def test_a_built_in_name_stays_with_the_built_in(tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_installed(site, "dspark-thief", "logits")
    document = command("dspark_factory.plugins_cli", "list", "--json", site=site, cwd=tmp_path).stdout
    usable, refused = (item for item in json.loads(document) if item["name"] == "logits")
    assert usable["distribution"] == "dspark-factory"
    assert "built-in name" in refused["error"]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("plugin = 3", "it yields 3, not a BufferPlugin"),
        ("raise SystemExit(5)", "raised SystemExit: 5"),
        (
            "from dspark_factory.api import *\nplugin = BufferPlugin(name='odd', spec=int, provider='a:B')",
            "its spec int is not a subclass of BufferSpec",
        ),
        (
            "from dspark_factory.api import *\nplugin = BufferPlugin(name='even', spec=BufferSpec, provider='a:B')",
            "entry point is called 'odd' but its descriptor 'even'",
        ),
        (
            "from dspark_factory.api import *\n"
            "plugin = BackendPlugin(name='odd', spec=BackendSpec, backend='a:B')",
            "it yields a BackendPlugin, not a BufferPlugin",
        ),
    ],
)
def test_odd_descriptors_are_explained(tmp_path: Path, module: str, words: str) -> None:
    site = tmp_path / "site"
    write_installed(site, "dspark-odd", "odd", module=module)
    assert words in listing(site, tmp_path)["odd"]["error"]
