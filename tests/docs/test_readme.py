"""What the README says is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dspark_factory.config import load_config

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("dspark ")
]


@pytest.mark.parametrize("command", [command for command in COMMANDS if "--" not in command])
def test_every_command_composes(command, tmp_path):
    arguments = [item for item in shlex.split(command)[1:] if item != "-m"]
    arguments = [item.replace("FOLDER", str(ROOT / "dspark_factory/checkpoints/tiny")) for item in arguments]
    load_config([re.sub(r"=(\d+)(,\d+)+$", r"=\1", item) for item in arguments])


def test_the_python_example_runs(tmp_path):
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    exec(compile(code.group(1), "README.md", "exec"), {})


def test_there_are_two_set_up_commands_of_one_line_each():
    lines = [line for line in README.splitlines() if line.startswith("[ -d .venv ]")]
    assert len(lines) == 2
    assert lines[0].endswith("&& .venv/bin/dspark")
    assert lines[1].endswith("&& .venv/bin/python -m pytest")
    assert "README.md" in (ROOT / ".ci/run").read_text()
