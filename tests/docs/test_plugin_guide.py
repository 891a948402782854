"""The author guide works: every command on the page is run, in order, in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/plugin-guide.md"
BLOCK = re.compile(r"```(console-fails|console|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment that sees the packages of the running one, and may be installed into."""
    folder = tmp_path_factory.mktemp("guide")
    venv.create(folder / "venv", with_pip=False)
    packages = sysconfig.get_path(
        "purelib", vars={"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    )
    own = sysconfig.get_path("purelib")
    Path(packages, "running.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    binaries = folder / "venv/bin"
    for name, code in {
        "dspark": "from dspark_factory.cli import main",
        "dspark-plugins": "from dspark_factory.plugins_cli import main",
        "pip": "from pip._internal.cli.main import main",
    }.items():
        script = binaries / name
        script.write_text(f"#!{binaries / 'python'}\nimport sys\n{code}\nsys.exit(main())\n")
        script.chmod(0o755)
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DSPARK"))
    }
    return folder, variables | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(folder / "venv"),
    }


def test_every_command_of_the_guide_does_what_the_page_says(environment):
    folder, variables = environment
    outputs: list[str] = []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            target = re.match(r"# file: (\S+)\n", text)
            assert target is not None
            (folder / target.group(1)).write_text(text)
            continue
        for command in text.splitlines():
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            outputs.append(done.stdout + done.stderr)
            assert (done.returncode == 0) == (kind == "console"), f"{command}\n{outputs[-1]}"
            assert "Traceback" not in outputs[-1], f"{command}\n{outputs[-1]}"
    everything = "\n".join(outputs)
    assert "Inplace update to inference tensor" in everything
    assert "dspark_draft_wins/provider.py:" in everything
    assert "draft_wins" not in outputs[-1]
