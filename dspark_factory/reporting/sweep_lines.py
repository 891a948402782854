"""What the figures of a sweep share: which rows a line joins, and the axis of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dspark_factory.reporting.sweep_summary import count_text
from dspark_factory.reporting.sweep_svg import COLOURS, MARKERS
from dspark_factory.sweeps.rows import SweepRow

MOST_LINES = len(COLOURS)
"""A figure with more lines cannot be read; it shows as many, evenly chosen."""


def fastest_rows(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """One row per batch size and count, by both; jobs that share them differ in something else."""
    found: dict[tuple[int, int], SweepRow] = {}
    for row in rows:
        key = (row.requests or 0, count_of(row))
        if key not in found or speed_of(row) > speed_of(found[key]):
            found[key] = row
    return [found[key] for key in sorted(found)]


def speed_of(row: SweepRow) -> float:
    """Median tokens per second; 0 where none were measured."""
    return row.tokens_per_second.median if row.tokens_per_second else 0.0


def count_of(row: SweepRow) -> int:
    """Rows per request and step: 1 without speculation."""
    return row.num_draft_tokens or 1


def requests_of(row: SweepRow) -> int:
    """Batch size; 0 where the row has none."""
    return row.requests or 0


def requests_text(requests: int) -> str:
    """Batch size in words."""
    return f"{requests} request" if requests == 1 else f"{requests} requests"


def lines_by(
    rows: Sequence[SweepRow], key: Callable[[SweepRow], int]
) -> Iterator[tuple[int, list[SweepRow], dict[str, Any]]]:
    """Rows of each key, with the style of their line; the first and the last key are always among them."""
    keys = evenly(sorted({key(row) for row in rows}))
    for index, value in enumerate(keys):
        style = {"color": COLOURS[index], "marker": MARKERS[index], "markersize": 4.5, "linewidth": 1.4}
        yield value, [row for row in rows if key(row) == value], style


def evenly(keys: list[int]) -> list[int]:
    """At most :data:`MOST_LINES` of the keys, the first and the last among them."""
    if len(keys) <= MOST_LINES:
        return keys
    return [keys[round(index * (len(keys) - 1) / (MOST_LINES - 1))] for index in range(MOST_LINES)]


def count_axis(axes: Any, rows: Sequence[SweepRow]) -> None:
    """Ticks and grid for an axis of counts, ``off`` at 1."""
    counts = sorted({count_of(row) for row in rows})
    shown = counts if len(counts) <= 12 else [count for count in counts if count in evenly(counts)]
    names = {count_of(row): count_text(row.num_draft_tokens) for row in rows}
    axes.set(
        xlabel="num_draft_tokens, anchor included", xticks=shown, xticklabels=[names[at] for at in shown]
    )
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#000000", alpha=0.15)
