"""Accept statistics, in sums and counts, so that they add up over any grouping of steps."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class AcceptStatistics:
    """Counts over steps of requests; a *step* here is one request's share of a verify step.

    Attributes:
        steps: request steps.
        committed_tokens: tokens committed, bonus included.
        offered: drafts really offered at each position (a shorter request offers fewer).
        accepted: drafts accepted at each position.
        histogram: request steps by number of committed tokens.
    """

    steps: int = 0
    committed_tokens: int = 0
    offered: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    histogram: dict[int, int] = field(default_factory=dict)

    def add(self, *, drafts: int, accept_len: int) -> None:
        """Count one request step that offered ``drafts`` and committed ``accept_len`` tokens, bonus included."""
        missing = drafts - len(self.offered)
        self.offered += [0] * missing
        self.accepted += [0] * missing
        for position in range(drafts):
            self.offered[position] += 1
            self.accepted[position] += position < accept_len - 1
        self.steps += 1
        self.committed_tokens += accept_len
        self.histogram[accept_len] = self.histogram.get(accept_len, 0) + 1

    def merge(self, other: AcceptStatistics) -> None:
        """Add another's counts."""
        missing = len(other.offered) - len(self.offered)
        self.offered += [0] * missing
        self.accepted += [0] * missing
        for position, (offered, accepted) in enumerate(zip(other.offered, other.accepted, strict=True)):
            self.offered[position] += offered
            self.accepted[position] += accepted
        self.steps += other.steps
        self.committed_tokens += other.committed_tokens
        for accept_len, count in other.histogram.items():
            self.histogram[accept_len] = self.histogram.get(accept_len, 0) + count

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
