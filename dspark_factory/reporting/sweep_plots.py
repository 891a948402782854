"""Figures of a sweep as SVG. From its rows alone; matplotlib is imported when they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import Any

from dspark_factory.reporting.sweep_calibration_plot import calibration_left_out, fill_calibration
from dspark_factory.reporting.sweep_left_out import (
    LeftOut,
    counts_left_out,
    merged,
    shown_text,
    sizes_left_out,
)
from dspark_factory.reporting.sweep_lines import (
    count_axis,
    count_of,
    evenly,
    fastest_rows,
    lines_by,
    requests_of,
    requests_text,
    speed_of,
)
from dspark_factory.reporting.sweep_nbytes_plot import fill_nbytes
from dspark_factory.reporting.sweep_summary import count_text
from dspark_factory.reporting.sweep_svg import draw, scale_axis, tick_text
from dspark_factory.sweeps.rows import SweepRow

TITLES = {
    "tokens-per-second": "Decode speed by draft tokens",
    "accept-length": "Accept length by draft tokens, with its 95 % interval",
    "pareto": "Throughput by speed of a request; the front is joined and labelled by num_draft_tokens",
    "nbytes": "Planned bytes and graphs by draft tokens, largest job of each count",
    "conditional-acceptance": "Acceptance of a draft whose predecessors were accepted, median over batch sizes",
    "calibration": "Observed by predicted survival at the first, middle and last draft position, before and after "
    "temperature scaling, with the expected calibration error (ECE)",
}
"""Name of each figure, and what it shows."""

Fill = Callable[[Any, Sequence[SweepRow]], None]
"""Draws rows on axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFigure:
    """One figure, and what it leaves out."""

    svg: str
    left_out: LeftOut


def figures(rows: Sequence[SweepRow]) -> dict[str, SweepFigure]:
    """Name → every figure that the rows have data for; rows that do not count are left out.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    usable = [row for row in rows if row.usable]
    batches = [row for row in usable if row.requests is not None]
    lengths = [row for row in batches if row.accept_length is not None and row.num_draft_tokens]
    speeds = [row for row in batches if speed_of(row) and requests_of(row)]
    shares = [row for row in batches if any(share is not None for share in row.conditional_acceptance)]
    calibrated = [row for row in usable if row.calibration]
    parts: dict[str, tuple[Sequence[SweepRow], Fill, LeftOut]] = {
        "tokens-per-second": _by_size([row for row in batches if row.tokens_per_second], _tokens_per_second),
        "accept-length": _by_size(lengths, _accept_length),
        "pareto": _by_size(speeds, _pareto),
        "nbytes": ([row for row in usable if row.nbytes_by_provider], fill_nbytes, {}),
        "conditional-acceptance": (fastest_rows(shares), _conditional_acceptance, counts_left_out(shares)),
        "calibration": (calibrated, fill_calibration, calibration_left_out(calibrated)),
    }
    return {
        name: SweepFigure(
            svg=draw(name, TITLES[name], _filled(fill, chosen), _note(left_out)), left_out=left_out
        )
        for name, (chosen, fill, left_out) in parts.items()
        if chosen
    }


def shown_of(drawn: Mapping[str, SweepFigure]) -> str:
    """What the figures together show: ``10 of 29 batch sizes``; empty where it is everything."""
    return shown_text(merged(figure.left_out for figure in drawn.values()))


def _note(left_out: LeftOut) -> str:
    return f"Shows {shown_text(left_out)}" if left_out else ""


def _by_size(rows: Sequence[SweepRow], fill: Fill) -> tuple[Sequence[SweepRow], Fill, LeftOut]:
    return fastest_rows(rows), fill, sizes_left_out(rows)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other beats in both values, by falling first value."""
    front: list[int] = []
    best = float("-inf")
    for index in sorted(range(len(points)), key=lambda index: points[index], reverse=True):
        if points[index][1] > best:
            front.append(index)
            best = points[index][1]
    return front


def _filled(fill: Fill, rows: Sequence[SweepRow]) -> Callable[[Any], None]:
    return lambda axes: fill(axes, rows)


def _tokens_per_second(axes: Any, rows: Sequence[SweepRow]) -> None:
    for requests, line, style in lines_by(rows, requests_of):
        speeds = [row.tokens_per_second for row in line if row.tokens_per_second]
        middle = [speed.median for speed in speeds]
        reach = (
            [speed.median - speed.low for speed in speeds],
            [speed.high - speed.median for speed in speeds],
        )
        axes.errorbar(
            [count_of(row) for row in line], middle, reach, label=requests_text(requests), capsize=2, **style
        )
    count_axis(axes, rows)
    scale_axis(axes.yaxis, [speed_of(row) for row in rows])
    axes.set(ylabel="tokens per second")


def _accept_length(axes: Any, rows: Sequence[SweepRow]) -> None:
    for requests, line, style in lines_by(rows, requests_of):
        lengths = [row.accept_length or 0.0 for row in line]
        intervals = [
            row.accept_length_interval or (length, length) for row, length in zip(line, lengths, strict=True)
        ]
        # A bootstrap interval may exclude the value that it belongs to, and no error bar is negative.
        below = [max(0.0, length - low) for length, (low, _) in zip(lengths, intervals, strict=True)]
        above = [max(0.0, high - length) for length, (_, high) in zip(lengths, intervals, strict=True)]
        axes.errorbar(
            [count_of(row) for row in line],
            lengths,
            (below, above),
            label=requests_text(requests),
            capsize=2,
            **style,
        )
    count_axis(axes, rows)
    axes.set(ylabel="accept length, bonus included")


def _pareto(axes: Any, rows: Sequence[SweepRow]) -> None:
    points = [(speed_of(row) / requests_of(row), speed_of(row)) for row in rows]
    front = pareto_front(points)
    axes.plot(
        [points[index][0] for index in front],
        [points[index][1] for index in front],
        color="#000000",
        alpha=0.45,
        linewidth=1,
    )
    for requests, line, style in lines_by(rows, requests_of):
        speeds = [speed_of(row) for row in line]
        axes.plot(
            [speed / requests for speed in speeds],
            speeds,
            label=requests_text(requests),
            **style | {"linewidth": 0},
        )
    for index in evenly(list(range(len(front)))):
        row = rows[front[index]]
        axes.annotate(
            count_text(row.num_draft_tokens),
            points[front[index]],
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=9,
        )
    scale_axis(axes.xaxis, [point[0] for point in points])
    scale_axis(axes.yaxis, [point[1] for point in points])
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#000000", alpha=0.15)
    axes.set(xlabel="tokens per second of a request", ylabel="tokens per second of the batch")


def _conditional_acceptance(axes: Any, rows: Sequence[SweepRow]) -> None:
    for count, line, style in lines_by(rows, count_of):
        columns = list(zip_longest(*(row.conditional_acceptance for row in line)))
        shares = [_middle(column) for column in columns]
        axes.plot(range(1, len(shares) + 1), shares, label=f"num_draft_tokens {count}", **style)
    most = max(len(row.conditional_acceptance) for row in rows)
    positions = range(1, most + 1, max(1, -(-most // 12)))
    axes.set(xlabel="draft position", ylabel="accepted share", ylim=(0, 1.05))
    axes.set(xticks=list(positions), xticklabels=[tick_text(position) for position in positions])
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#000000", alpha=0.15)


def _middle(shares: Sequence[float | None]) -> float:
    known = [share for share in shares if share is not None]
    return median(known) if known else float("nan")
