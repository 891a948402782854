"""The figure of predicted against observed survival of drafts: a reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspark_factory.reporting.sweep_left_out import CALIBRATED, LeftOut
from dspark_factory.reporting.sweep_summary import first_line
from dspark_factory.reporting.sweep_svg import COLOURS, MARKERS
from dspark_factory.sweeps.calibration import Calibration
from dspark_factory.sweeps.rows import SweepRow


def calibrated_row(rows: Sequence[SweepRow]) -> SweepRow | None:
    """The row whose job calibrated most draft positions, the first of equals; ``None`` without any."""
    found = [row for row in rows if row.calibration]
    return max(found, key=lambda row: len(row.calibration), default=None)


def calibration_left_out(rows: Sequence[SweepRow]) -> LeftOut:
    """Of several jobs with a calibration, all but the drawn one."""
    jobs, drawn = {row.job for row in rows if row.calibration}, calibrated_row(rows)
    if drawn is None or len(jobs) == 1:
        return {}
    return {CALIBRATED: f"one of {len(jobs)} calibrations (job {first_line(drawn.job)})"}


def fill_calibration(axes: Any, rows: Sequence[SweepRow]) -> None:
    """Draw the first, the middle and the last draft position, each before and after temperature scaling."""
    row = calibrated_row(rows)
    positions = _first_middle_last(row.calibration if row else ())
    axes.plot([0, 1], [0, 1], color="#000000", alpha=0.45, linewidth=1)
    # All of one kind first, so that a legend of two columns has one kind in each.
    for after in (False, True):
        for index, item in enumerate(positions):
            points = item.after if after else item.before
            if not points:
                continue
            axes.plot(
                [predicted for predicted, _ in points],
                [observed for _, observed in points],
                label=_label(item, after=after),
                color=COLOURS[index],
                marker=MARKERS[index],
                markersize=4.5,
                linewidth=1.4,
                linestyle="-" if after else "--",
                markerfacecolor=COLOURS[index] if after else "none",
            )
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    axes.set(xlabel="predicted survival to the draft position", ylabel="observed share")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=ticks, yticks=ticks)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#000000", alpha=0.15)


def _first_middle_last(positions: Sequence[Calibration]) -> list[Calibration]:
    if not positions:
        return []
    last = len(positions) - 1
    return [positions[index] for index in sorted({0, last // 2, last})]


def _label(item: Calibration, *, after: bool) -> str:
    error = item.error_after if after else item.error_before
    name = f"draft {item.position} {'after' if after else 'before'}"
    return name if error is None else f"{name}, ECE {error:.3f}"
