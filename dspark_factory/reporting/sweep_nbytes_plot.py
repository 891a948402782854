"""The figure of bytes by draft tokens, stacked by provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspark_factory.reporting.sweep_lines import MOST_LINES, count_axis, count_of
from dspark_factory.reporting.sweep_summary import printable
from dspark_factory.reporting.sweep_svg import COLOURS, scale_axis
from dspark_factory.sweeps.rows import SweepRow


def fill_nbytes(axes: Any, rows: Sequence[SweepRow]) -> None:
    """Draw a bar for each count, of the job that plans most with it; graphs are a part like a provider."""
    largest: dict[int, SweepRow] = {}
    for row in rows:
        if _total(row) > _total(largest.get(count_of(row))):
            largest[count_of(row)] = row
    parts = {count: _parts(largest[count]) for count in sorted(largest)}
    names = _by_size(parts)
    unit, divisor = _unit(max(sum(part.values()) for part in parts.values()))
    base = [0.0] * len(parts)
    for index, name in enumerate(names):
        heights = [part.get(name, 0) / divisor for part in parts.values()]
        axes.bar(list(parts), heights, bottom=base, label=_label(name), color=COLOURS[index])
        base = [low + height for low, height in zip(base, heights, strict=True)]
    count_axis(axes, list(largest.values()))
    axes.grid(visible=False, axis="x")
    scale_axis(axes.yaxis, [0.0, *base])
    axes.set(ylabel=unit)


def _total(row: SweepRow | None) -> int:
    return -1 if row is None else sum((row.nbytes_by_provider or {}).values())


def _parts(row: SweepRow) -> dict[str, int]:
    graphs = {"graphs": row.graph_nbytes} if row.graph_nbytes else {}
    return (row.nbytes_by_provider or {}) | graphs


def _by_size(parts: dict[int, dict[str, int]]) -> list[str]:
    """Names by falling size; the smallest become ``others`` in ``parts`` where there are too many."""
    names = dict.fromkeys(name for part in parts.values() for name in part)
    ordered = sorted(names, key=lambda name: -max(part.get(name, 0) for part in parts.values()))
    if len(ordered) <= MOST_LINES:
        return ordered
    kept, rest = ordered[: MOST_LINES - 1], ordered[MOST_LINES - 1 :]
    for part in parts.values():
        part["others"] = sum(part.get(name, 0) for name in rest)
    return [*kept, "others"]


def _unit(nbytes: int) -> tuple[str, int]:
    exponent = max((power for power in range(1, 5) if nbytes >= 1024**power), default=0)
    return ("B", "KiB", "MiB", "GiB", "TiB")[exponent], 1024**exponent


def _label(name: str) -> str:
    """The name as a legend shows it; matplotlib leaves those out that start with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)
