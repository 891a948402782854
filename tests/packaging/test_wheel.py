"""The wheel and the source distribution hold everything that runs, and run from anywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGED = ("dspark_factory", "hydra_plugins", "conf", "pyproject.toml", "README.md", "LICENSE")

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="needs the source tree")


def package_files(suffix: str) -> set[str]:
    """Files of the tree by their path inside the wheel."""
    package = ROOT / "dspark_factory"
    files = {f"dspark_factory/{path.relative_to(package)}" for path in package.rglob(f"*{suffix}")}
    conf = ROOT / "conf"
    return files | {f"dspark_factory/conf/{path.relative_to(conf)}" for path in conf.rglob(f"*{suffix}")}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the sources, so that building leaves nothing in the tree."""
    folder = tmp_path_factory.mktemp("source")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def build_wheel(source: Path, folder: Path) -> Path:
    arguments = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", source, *arguments, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, folder, cwd=source)
    (archive,) = folder.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, to be put first on the path."""
    target = tmp_path_factory.mktemp("installed")
    arguments = ("--no-deps", "--no-index", "--target", target)
    run(sys.executable, "-m", "pip", "install", *arguments, wheel, cwd=target)
    return target


def test_the_package_list_equals_the_tree() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        path.parent for name in ("dspark_factory", "hydra_plugins") for path in (ROOT / name).rglob("*.py")
    }
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders} | {"dspark_factory.conf"}
    assert sorted(stated) == sorted(found)
    assert stated == sorted(stated)
    assert all((folder / "__init__.py").is_file() for folder in folders)


def test_the_wheel_holds_code_configurations_checkpoint_and_types(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert package_files(".py") <= held
    assert package_files(".yaml") <= held
    assert {"dspark_factory/conf/config.yaml", "dspark_factory/py.typed"} <= held
    assert package_files(".safetensors") <= held
    assert package_files(".json") <= held
    assert package_files(".tmpl") <= held
    assert not [name for name in held if name.startswith(("tests/", "conf/", "docs/"))]


def test_the_source_distribution_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    (tmp_path / "again").mkdir()
    again = build_wheel(unpacked, tmp_path / "again")
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_the_console_scripts_and_built_in_plugins_are_declared(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [item for item in archive.namelist() if item.endswith("entry_points.txt")]
        declared = archive.read(name).decode()
    assert "dspark = dspark_factory.cli:main" in declared
    assert "dspark-plugins = dspark_factory.plugins_cli:main" in declared
    assert "kv_pools = dspark_factory.kv:KV_POOLS" in declared
    assert "reference = dspark_factory.attention:REFERENCE" in declared


def test_the_installed_package_finds_its_configurations(installed: Path, tmp_path: Path) -> None:
    output = run(
        sys.executable,
        "-m",
        "dspark_factory",
        "--info",
        "searchpath",
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )
    assert "pkg://dspark_factory.conf" in output


def test_the_installed_package_plans_in_another_folder(installed: Path, tmp_path: Path) -> None:
    code = "import dspark_factory, dspark_factory.conf as c; print(dspark_factory.__file__, c.__file__)"
    places = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).split()
    assert all(Path(place).is_relative_to(installed) for place in places)
    output = run(sys.executable, "-m", "dspark_factory", "task=plan", cwd=tmp_path, PYTHONPATH=str(installed))
    assert "extend_seq_lens" in output
    assert list((tmp_path / "outputs").rglob("record.json"))
