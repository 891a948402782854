"""Composes a plugin's configuration in processes that start from nothing, as a launcher's workers do."""

from __future__ import annotations

import sys
from multiprocessing import get_context

from dspark_factory import load_config


def job(overrides: list[str]) -> int:
    """One job of a sweep."""
    return load_config(overrides).buffers["accept_trace"].depth  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    with get_context("spawn").Pool(2) as pool:
        print(pool.map(job, [[*sys.argv[1:], f"+accept_trace={preset}"] for preset in ("short", "deep")]))
