"""Hydra's launchers and sweepers that are packages of their own, and what to say where one is not installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from hydra.errors import MissingConfigException

EXTRAS = {
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/submitit_local": "submitit",
    "hydra/launcher/submitit_slurm": "submitit",
    "hydra/launcher/ray": "ray",
    "hydra/launcher/ray_aws": "ray",
    "hydra/sweeper/optuna": "optuna",
}
"""Option that a package brings → the extra of this project that installs it."""

PACKAGES = {
    "joblib": "hydra-joblib-launcher",
    "submitit": "hydra-submitit-launcher",
    "ray": "hydra-ray-launcher",
    "optuna": "hydra-optuna-sweeper",
}
"""Extra, named as the library that it is for → the package that brings its options."""


def missing_extra(error: BaseException, overrides: Sequence[str]) -> str | None:
    """Reason that names the extra to install, if the error is that a launcher or sweeper is not; else ``None``."""
    for cause in _chain(error):
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file in EXTRAS:
            extra = EXTRAS[cause.missing_cfg_file]
            group, name = cause.missing_cfg_file.rsplit("/", 1)
            return _reason(_chosen_by(overrides, group) or f"{group}={name}", PACKAGES[extra], extra)
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").split(".")[0] in PACKAGES:
            extra = str(cause.name).split(".")[0]
            group = next(option for option, found in EXTRAS.items() if found == extra).rsplit("/", 1)[0]
            return _reason(_chosen_by(overrides, group) or group, extra, extra)
    return None


def _reason(where: str, package: str, extra: str) -> str:
    try:
        version(package)
    except PackageNotFoundError:
        return (
            f"{where}: it needs {package}, which is not installed; run pip install 'dspark-factory[{extra}]'"
        )
    return (
        f"{where}: it needs {package}, which is installed and cannot be imported; "
        f"run pip install --force-reinstall {package}"
    )


def _chosen_by(overrides: Sequence[str], group: str) -> str | None:
    """The override that chose this group, else the preset of a sweep, which may have."""
    for name in (group, "sweep"):
        for line in overrides:
            if re.match(rf"\+{{0,2}}{name}=", line):
                return line
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
