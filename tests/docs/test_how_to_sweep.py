"""Every command of the guide composes, and what it says of files is true."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/how-to-sweep.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("dspark ")
]


def test_the_guide_has_commands():
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_composes(command, tmp_path):
    arguments = [item for item in shlex.split(command)[1:] if item != "-m"]
    one_each = [re.sub(r"=(\w+)(,\w+)+$", r"=\1", item) for item in arguments]
    shown = subprocess.run(
        [sys.executable, "-m", "dspark_factory", *one_each, "--cfg", "all"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr


def test_a_recommendation_comes_from_the_files_that_it_shows(tmp_path):
    costs = re.search(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    assert costs is not None
    (tmp_path / "costs.json").write_text(json.dumps(json.loads(costs.group(1))))
    (tmp_path / "accepted.csv").write_text("accepted,offered\n" + "5,5\n3,5\n4,5\n0,5\n" * 50)
    command = next(line for line in COMMANDS if "task=recommend" in line)
    ran = subprocess.run(
        [sys.executable, "-m", "dspark_factory", *shlex.split(command)[1:]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "'speculative.schedule=[[1,6]]'" in ran.stdout
