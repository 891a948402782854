"""What the figures of a sweep show instead of everything, in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dspark_factory.reporting.sweep_lines import MOST_LINES, count_of, requests_of
from dspark_factory.sweeps.rows import SweepRow

SIZES, COUNTS, FASTEST, CALIBRATED = "batch sizes", "draft-token counts", "jobs", "calibrations"
"""Kinds of what may be left out."""

LeftOut = Mapping[str, str]
"""Kind → what is shown instead of everything; empty where everything is shown."""


def sizes_left_out(rows: Sequence[SweepRow]) -> LeftOut:
    """Of a figure with a line for each batch size."""
    return _lines(SIZES, len({requests_of(row) for row in rows})) | _slower(rows)


def counts_left_out(rows: Sequence[SweepRow]) -> LeftOut:
    """Of a figure with a line for each count."""
    return _lines(COUNTS, len({count_of(row) for row in rows})) | _slower(rows)


def merged(found: Iterable[LeftOut]) -> LeftOut:
    """What several figures leave out; of one kind, what the first of them says."""
    merged: dict[str, str] = {}
    for item in found:
        merged = {**item, **merged}
    return {kind: merged[kind] for kind in (SIZES, COUNTS, FASTEST, CALIBRATED) if kind in merged}


def shown_text(left_out: LeftOut) -> str:
    """What is shown: ``10 of 29 batch sizes``; empty where it is everything."""
    return ", ".join(left_out.values())


def _lines(noun: str, number: int) -> dict[str, str]:
    return {noun: f"{MOST_LINES} of {number} {noun}"} if number > MOST_LINES else {}


def _slower(rows: Sequence[SweepRow]) -> dict[str, str]:
    if len(rows) == len({(requests_of(row), count_of(row)) for row in rows}):
        return {}
    return {FASTEST: "the fastest job of each count"}
