"""Where a job ran: versions and platform, without importing what they belong to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

DISTRIBUTIONS = (
    "dspark-factory", "torch", "transformers", "hydra-core", "omegaconf", "flashinfer-python",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Python, platform, CPU count and the versions of what decides a result."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "versions": {name: _version(name) for name in DISTRIBUTIONS},
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
