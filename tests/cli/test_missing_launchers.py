"""A launcher or sweeper whose package is not installed: one line that says what to install, in a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dspark_factory.config.extras import EXTRAS, PACKAGES

ROOT = Path(__file__).parents[2]
COUNTS = ("task=plan", "speculative.num_draft_tokens=2,3")


def site_without(folder: Path, *hidden: str) -> Path:
    """All that is installed here, by links, without these packages and parts of ``hydra_plugins``."""
    (folder / "hydra_plugins").mkdir(parents=True)
    gone = {name.replace("-", "_") for name in hidden}
    for site in [Path(path) for path in sys.path if path.endswith("site-packages")]:
        for source in [*site.iterdir(), *(site / "hydra_plugins").glob("*")]:
            target = folder / source.relative_to(site)
            hide = source.name == "hydra_plugins" or source.name.split("-")[0] in gone
            if not hide and not target.exists():
                target.symlink_to(source)
    return folder


def dspark(site: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with the packages of ``site`` alone."""
    code = (
        f"import site, sys; site.addsitedir({str(site)!r});"
        "from dspark_factory.cli import main; sys.exit(main())"
    )
    hide = ("HYDRA_FULL_ERROR", "PYTHONPATH")
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *arguments],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in hide},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("extra", "arguments", "line"),
    [
        ("joblib", ("-m", "hydra/launcher=joblib_workers", *COUNTS), "hydra/launcher=joblib_workers"),
        # Options of the launcher cannot be judged without it, and are no second error.
        ("joblib", ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), "hydra/launcher=joblib"),
        ("submitit", ("-m", "hydra/launcher=submitit_local", *COUNTS), "hydra/launcher=submitit_local"),
        ("submitit", ("-m", "hydra/launcher=slurm_gpu", *COUNTS), "hydra/launcher=slurm_gpu"),
        ("ray", ("-m", "hydra/launcher=ray_gpu", *COUNTS), "hydra/launcher=ray_gpu"),
        ("optuna", ("-m", "+sweep=search", "task.repeats=1"), "+sweep=search"),
        ("optuna", ("-m", "hydra/sweeper=optuna", *COUNTS), "hydra/sweeper=optuna"),
    ],
)
def test_an_absent_package_is_one_line_with_its_extra(
    tmp_path: Path, extra: str, arguments: tuple[str, ...], line: str
) -> None:
    package = PACKAGES[extra]
    site = site_without(tmp_path / "site", extra, package)
    ran = dspark(site, *arguments, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"error: {line}: it needs {package}, which is not installed; run pip install 'dspark-factory[{extra}]'\n"
    )


@pytest.mark.parametrize(
    ("library", "line"),
    [
        ("joblib", "hydra/launcher=joblib_workers"),
        ("submitit", "hydra/launcher=submitit_local"),
        ("optuna", "+sweep=search"),
    ],
)
def test_a_package_without_its_library_says_the_same(tmp_path: Path, library: str, line: str) -> None:
    pytest.importorskip(f"hydra_plugins.{PACKAGES[library].replace('-', '_')}")
    ran = dspark(site_without(tmp_path / "site", library), "-m", line, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"error: {line}: it needs {library}, which is not installed; run pip install 'dspark-factory[{library}]'\n"
    )


def test_a_package_that_is_there_and_not_found_is_to_be_reinstalled(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    site = site_without(tmp_path / "site", "joblib", "hydra_joblib_launcher")
    info = site / "hydra_joblib_launcher-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hydra-joblib-launcher\nVersion: 9\n")
    ran = dspark(site, "-m", "hydra/launcher=joblib", "task=plan", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: hydra/launcher=joblib: it needs hydra-joblib-launcher, which is installed and cannot be imported; "
        "run pip install --force-reinstall hydra-joblib-launcher\n"
    )


def test_every_extra_that_is_named_exists() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert set(EXTRAS.values()) == set(PACKAGES)
    for extra, package in PACKAGES.items():
        assert f'{extra} = ["{package}>=' in text
