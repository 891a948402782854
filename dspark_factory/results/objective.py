"""The one number that a search maximises."""

from __future__ import annotations

from statistics import fmean

from dspark_factory.results.record import Record


def objective(record: Record) -> float | None:
    """Tokens per second, with speculation where that is told apart, as a mean over batch sizes; ``None`` without."""
    speeds = record.tokens_per_second or {}
    with_speculation = speeds.get("with_speculation")
    if with_speculation is not None:
        return with_speculation
    known = [speed for speed in speeds.values() if speed is not None]
    return fmean(known) if known else None
