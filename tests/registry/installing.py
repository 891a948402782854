"""Small third-party distributions for tests: written, installed and removed without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

PROVIDER = """
class Provider:
    def gate(self, spec, dims):
        {gate}
    def requests(self, spec, dims):
        return ()
    def bind(self, buffers, dims):
        return None
"""

DESCRIPTOR = """
from dspark_factory.api import BufferPlugin, BufferSpec

plugin = BufferPlugin(name="{name}", spec=BufferSpec, provider="{package}.provider:Provider", {more})
"""


def write_installed(
    folder: Path, distribution: str, name: str, *, module: str | None = None, gate: str = "", more: str = ""
) -> None:
    """Put a distribution with one buffer plugin into ``folder``, as an installer leaves it."""
    package = distribution.replace("-", "_")
    (folder / package).mkdir(parents=True)
    text = module or DESCRIPTOR.format(name=name, package=package, more=more)
    (folder / package / "__init__.py").write_text(textwrap.dedent(text))
    gate = gate or "from dspark_factory.api import Gate; return Gate.on()"
    (folder / package / "provider.py").write_text(PROVIDER.format(gate=gate))
    info = folder / f"{package}-0.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.7\n")
    (info / "entry_points.txt").write_text(f"[dspark_factory.buffers]\n{name} = {package}:plugin\n")


def write_bad_plugins(folder: Path) -> None:
    """Five that cannot be used (the twins are two distributions), each in its own way."""
    write_installed(folder, "dspark-no-import", "no_import", module="import a_module_that_is_not_there")
    write_installed(folder, "dspark-bad-gate", "bad_gate", gate='raise ValueError("the gate is broken")')
    write_installed(folder, "dspark-twin-a", "twin")
    write_installed(folder, "dspark-twin-b", "twin")
    write_installed(folder, "dspark-old", "outdated", more="api_version=0")
    write_installed(folder, "dspark-no-conf", "no_conf", more='config_package="dspark_no_conf.conf"')


def run(
    *command: str | Path, cwd: Path, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; with ``check`` it has to succeed."""
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "HYDRA_FULL_ERROR"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert not check or finished.returncode == 0, finished.stdout + finished.stderr
    return finished


class CleanEnvironment:
    """A virtual environment of its own, which borrows what the running one has installed."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"
        (own,) = folder.glob("lib/python*/site-packages")
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        # addsitedir and not a plain path, so that an editable install of the project is borrowed too.
        lines = "; ".join(f"site.addsitedir({path!r})" for path in borrowed)
        (own / "zz_borrowed.pth").write_text(f"import site; {lines}\n")

    def pip(self, *arguments: str | Path) -> None:
        """Run pip without a network."""
        if arguments[0] == "install":
            arguments = ("install", "--no-deps", "--no-build-isolation", "--no-index", *arguments[1:])
        run(self.python, "-m", "pip", *arguments, cwd=self.folder)

    def dspark(self, *arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``dspark``."""
        return run(self.python, "-m", "dspark_factory", *arguments, cwd=cwd, check=check)

    def plugins(self, *arguments: str | Path, cwd: Path, check: bool = True) -> str:
        """Run ``dspark-plugins``; its output."""
        return run(self.python, "-m", "dspark_factory.plugins_cli", *arguments, cwd=cwd, check=check).stdout
