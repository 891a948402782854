"""Repeated measurements of one quantity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of one quantity in the order in which they were measured; at least one."""

    values: tuple[float, ...]

    @staticmethod
    def of(values: Iterable[Any] | None) -> Spread | None:
        """Spread of the numbers among ``values``; ``None`` when there are none."""
        numbers = tuple(float(value) for value in values or () if isinstance(value, int | float))
        return Spread(numbers) if numbers else None

    @property
    def median(self) -> float:
        """Middle value."""
        return median(self.values)

    @property
    def low(self) -> float:
        """Smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """Largest value."""
        return max(self.values)

    @property
    def noise(self) -> float:
        """Median distance to the median, as a share of it, scaled to a standard deviation of normal noise."""
        middle = self.median
        distance = median(abs(value - middle) for value in self.values)
        return 1.4826 * distance / abs(middle) if middle else 0.0
