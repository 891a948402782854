"""The ``dspark-plugins`` command: its help, what it refuses, and what it writes."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dspark_factory.plugins_cli import listing, main
from dspark_factory.registry import register_buffer_plugin
from tests.conftest import Register
from tests.third_party import HISTORY


@pytest.mark.parametrize("command", ["list", "check", "new"])
def test_each_command_teaches_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as finished:
        main([command, "--help"])
    assert finished.value.code == 0
    assert f"dspark-plugins {command} " in capsys.readouterr().out


def test_the_listing_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "kind", "distribution", "config", "groups", "state"]
    assert main(["list", "--json"]) == 0
    names = [item["name"] for item in json.loads(capsys.readouterr().out)]
    assert {"kv_pools", "extend_seq_lens", "reference"} <= set(names)
    assert names == [item.name for item in listing()]


def test_a_plugin_of_this_process_is_listed(register: Register) -> None:
    register(HISTORY)
    (listed,) = (item for item in listing() if item.name == "history")
    assert (listed.distribution, listed.error) == (None, None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AcceptTrace", "is not snake_case"),
        ("accept-trace", "is not snake_case"),
        ("_trace", "is not snake_case"),
        ("class", "is a word of Python or YAML"),
        ("null", "is a word of Python or YAML"),
        ("kv_pools", "is taken by an installed plugin"),
        ("reference", "is taken by an installed plugin"),
        ("model", "is taken by the configuration"),
        ("default", "is taken by the configuration"),
        ("factory", "the package dspark_factory exists already"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert main(["new", name, "--into", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dspark-accept-trace").mkdir()
    assert main(["new", "accept_trace", "--into", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert not list((tmp_path / "dspark-accept-trace").iterdir())


@pytest.mark.parametrize("options", [(), ("--backend",)])
def test_what_is_written_is_complete(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert main(["new", "accept_trace", "--into", str(tmp_path), *options]) == 0
    folder = tmp_path / "dspark-accept-trace"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/dspark_accept_trace/py.typed"} <= written
    assert len([name for name in written if name.endswith(".yaml")]) == 3
    kind = "backends" if options else "buffers"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {
        f"dspark_factory.{kind}": {"accept_trace": "dspark_accept_trace:plugin"}
    }
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert "$" not in text
            assert "PACKAGE" not in text
            if path.suffix == ".py":
                ast.parse(text)


def test_an_unknown_plugin_is_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "kv_pool"]) == 2
    assert "did you mean 'kv_pools'?" in capsys.readouterr().err


def test_a_failed_check_is_told_by_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    testing = pytest.importorskip("dspark_factory.testing")
    results = [
        testing.CheckResult("fine", passed=True),
        testing.CheckResult("bad", passed=False, message="why"),
    ]
    monkeypatch.setattr(testing, "check_plugin", lambda name, overrides: results)
    assert main(["check", "logits"]) == 1
    output = capsys.readouterr().out
    assert "bad: why" in output
    assert "logits: 1 of 2 checks failed" in output
    assert callable(register_buffer_plugin)


def test_listing_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from dspark_factory.plugins_cli import main; main(['list']);"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
