"""Accept statistics, in sums and counts, so that they add up over any grouping of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

RESAMPLES = 2000
"""Bootstrap samples of a confidence interval."""


@dataclass(kw_only=True)
class AcceptStatistics:
    """Counts over steps of requests; a *step* here is one request's share of a verify step.

    Attributes:
        steps: request steps.
        committed_tokens: tokens committed, bonus included.
        offered: drafts really offered at each position (a shorter request offers fewer).
        reached: of those, drafts whose predecessors were all accepted.
        accepted: drafts accepted at each position.
        histogram: request steps by number of committed tokens.
    """

    steps: int = 0
    committed_tokens: int = 0
    offered: list[int] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    histogram: dict[int, int] = field(default_factory=dict)

    def add(self, *, drafts: int, accept_len: int) -> None:
        """Count one request step that offered ``drafts`` and committed ``accept_len`` tokens, bonus included."""
        self._widen(drafts)
        for position in range(drafts):
            self.offered[position] += 1
            self.reached[position] += position < accept_len
            self.accepted[position] += position < accept_len - 1
        self.steps += 1
        self.committed_tokens += accept_len
        self.histogram[accept_len] = self.histogram.get(accept_len, 0) + 1

    def merge(self, other: AcceptStatistics) -> None:
        """Add another's counts."""
        self._widen(len(other.offered))
        for own, theirs in zip(self._counts(), other._counts(), strict=True):
            for position, count in enumerate(theirs):
                own[position] += count
        self.steps += other.steps
        self.committed_tokens += other.committed_tokens
        for accept_len, count in other.histogram.items():
            self.histogram[accept_len] = self.histogram.get(accept_len, 0) + count

    def _counts(self) -> tuple[list[int], list[int], list[int]]:
        return self.offered, self.reached, self.accepted

    def _widen(self, positions: int) -> None:
        for counts in self._counts():
            counts += [0] * (positions - len(counts))

    @property
    def accept_length(self) -> float | None:
        """Committed tokens per request step, bonus included; ``None`` before the first step."""
        return self.committed_tokens / self.steps if self.steps else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted drafts over drafts really offered; ``None`` when none was."""
        offered = sum(self.offered)
        return sum(self.accepted) / offered if offered else None

    @property
    def acceptance_per_position(self) -> list[float | None]:
        """Share of the drafts offered at each position that were accepted, all before them included."""
        return [
            accepted / offered if offered else None
            for offered, accepted in zip(self.offered, self.accepted, strict=True)
        ]

    @property
    def conditional_acceptance(self) -> list[float | None]:
        """Share of the drafts at each position that were accepted, of those whose predecessors were."""
        return [
            accepted / reached if reached else None
            for reached, accepted in zip(self.reached, self.accepted, strict=True)
        ]


def accept_length_interval(requests: Sequence[AcceptStatistics]) -> tuple[float, float] | None:
    """95 % confidence interval of the accept length; ``None`` for fewer than two requests.

    Bootstrap over requests and not over steps, because the steps of one text resemble one another.
    """
    steps = np.array([item.steps for item in requests if item.steps])
    committed = np.array([item.committed_tokens for item in requests if item.steps])
    if len(steps) < 2:
        return None
    drawn = np.random.default_rng(0).integers(len(steps), size=(RESAMPLES, len(steps)))
    low, high = np.percentile(committed[drawn].sum(axis=1) / steps[drawn].sum(axis=1), [2.5, 97.5])
    return float(low), float(high)
