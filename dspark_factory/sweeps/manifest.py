"""Which jobs a sweep has, beside the records of those that ran."""

from __future__ import annotations

import json
from pathlib import Path

MANIFEST_NAME = "sweep.json"
"""File in a sweep's folder: ``{"jobs": [{"job": folder, "overrides": [...]}]}``."""


def listed_jobs(folder: Path) -> list[str]:
    """Folders of the jobs that the sweep's list names; empty where there is no list or it cannot be read."""
    try:
        listed = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))["jobs"]
        return [str(item["job"]) for item in listed]
    except (OSError, ValueError, KeyError, TypeError):
        return []
