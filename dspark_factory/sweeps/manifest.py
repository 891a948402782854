"""Which jobs a sweep has, beside the records of those that ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_factory.results.store import write_whole

MANIFEST_NAME = "sweep.json"
"""File in a sweep's folder: ``{"jobs": [{"job": folder, "overrides": [...]}]}``."""


def write_manifest(folder: Path, jobs: Mapping[str, Sequence[str]]) -> None:
    """Write which jobs a sweep has, so that a report knows those that never began; adds to an earlier list.

    Args:
        folder: the sweep's.
        jobs: job's folder, relative to the sweep's → its overrides.
    """
    known = _listed(folder) | {job: {"job": job, "overrides": list(given)} for job, given in jobs.items()}
    write_whole(folder / MANIFEST_NAME, json.dumps({"jobs": list(known.values())}, indent=2) + "\n")


def listed_jobs(folder: Path) -> list[str]:
    """Folders of the jobs that the sweep's list names; empty where there is no list or it cannot be read."""
    return list(_listed(folder))


def _listed(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        listed = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))["jobs"]
        return {str(item["job"]): item for item in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
