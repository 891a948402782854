"""Everything up to the plan answers without torch and transformers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
sys.argv = ["dspark", *sys.argv[1:]]
try:
    from dspark_factory.cli import main
    status = main()
except SystemExit as finished:
    status = finished.code
heavy = sorted({"torch", "transformers", "flashinfer"} & set(sys.modules))
sys.exit(f"imported {heavy}" if heavy else status)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--cfg", "job"),
        ("--info", "plugins"),
        ("-sc", "query=bash"),
        ("task=plan", "model=v4_flash", "speculative=dspark"),
        ("task=plan", "output=json", "workload.temperature=1", "speculative.verify_layout=ragged"),
    ],
    ids=" ".join,
)
def test_the_command_imports_no_torch(arguments: tuple[str, ...], tmp_path: Path) -> None:
    import os

    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=tmp_path,
        env=os.environ | {"COMP_LINE": "dspark model=", "COMP_POINT": "13"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_a_refusal_imports_no_torch(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, "model=v4flash"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 2, finished.stderr
    assert "imported" not in finished.stderr


def test_importing_the_package_imports_next_to_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import dspark_factory;"
        "heavy = {'torch', 'hydra', 'omegaconf', 'rich', 'numpy'} & (set(sys.modules) - before);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
