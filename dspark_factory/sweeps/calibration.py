"""How well a job's drafter predicts which drafts survive, as its record says it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Point = tuple[float, float]
"""Predicted and observed share."""

_ROUNDING = 1e-6
"""A mean of shares may miss the range by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Predicted against observed survival up to one draft position.

    Attributes:
        position: draft position, the first is 1.
        before: one point per filled bin, as the drafter predicts, by rising prediction.
        after: the same after temperature scaling.
        error_before: expected calibration error of ``before``; ``None`` where it is not known.
        error_after: that of ``after``.
    """

    position: int
    before: tuple[Point, ...]
    after: tuple[Point, ...]
    error_before: float | None
    error_after: float | None


def calibration_of(measured: Any) -> tuple[Calibration, ...]:
    """Positions of ``measurements["calibration"]`` in ascending order, without those that have no filled bin.

    Raises:
        TypeError: a value has another type; the message names the key.
        ValueError: a share is not from 0 to 1.
        KeyError: a key is missing.
    """
    if measured is None:
        return ()
    found = (_position(item) for item in measured["positions"])
    return tuple(
        sorted((item for item in found if item.before or item.after), key=lambda item: item.position)
    )


def _position(item: dict[str, Any]) -> Calibration:
    position = item["position"]
    if not isinstance(position, int):
        raise TypeError(f"calibration position is {position!r}, no whole number")
    return Calibration(
        position=position,
        before=_points(item.get("bins") or ()),
        after=_points(item.get("bins_after") or ()),
        error_before=_share("ece_before", item.get("ece_before")),
        error_after=_share("ece_after", item.get("ece_after")),
    )


def _points(bins: Iterable[dict[str, Any]]) -> tuple[Point, ...]:
    points = []
    for item in bins:
        predicted, observed = _share("predicted", item["predicted"]), _share("observed", item["observed"])
        if item["count"] and predicted is not None and observed is not None:
            points.append((predicted, observed))
    return tuple(sorted(points))


def _share(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise TypeError(f"calibration {name} is {value!r}, no number")
    if not -_ROUNDING <= value <= 1 + _ROUNDING:
        raise ValueError(f"calibration {name} is {value!r}, no share from 0 to 1")
    return min(max(float(value), 0.0), 1.0)
