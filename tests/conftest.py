"""Fixtures for all tests: third-party plugins for one test, the command in a process, the GPU marker."""

from __future__ import annotations

import os

# Workers share the cores; a second thread in each would only wait for the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU, Triton kernels run in its interpreter; it must know before it is imported.
os.environ.setdefault("TRITON_INTERPRET", "0" if os.path.exists("/dev/nvidia0") else "1")

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dspark_factory.api import BackendPlugin, BufferPlugin
from dspark_factory.registry import backend_plugins, buffer_plugins, register_plugin

Plugin = BufferPlugin | BackendPlugin
Register = Callable[[Plugin], None]
Dspark = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU; torch is only asked when such a test was collected."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def register(hydra_restore_singletons: None) -> Iterator[Register]:
    """Registers a plugin for the length of the test."""
    registered: list[Plugin] = []

    def register_for_test(plugin: Plugin) -> None:
        register_plugin(plugin)
        registered.append(plugin)

    yield register_for_test
    for plugin in registered:
        known = buffer_plugins if isinstance(plugin, BufferPlugin) else backend_plugins
        known.unregister(plugin.name)


@pytest.fixture
def dspark(tmp_path: Path) -> Dspark:
    """Runs ``dspark`` with these arguments in a process of its own, in an empty folder."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        # Test workers set the width of their own terminal.
        dropped = ("HYDRA_FULL_ERROR", "COLUMNS")
        inherited = {name: value for name, value in os.environ.items() if name not in dropped}
        return subprocess.run(
            [sys.executable, "-m", "dspark_factory", *arguments],
            cwd=tmp_path,
            env=inherited | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
