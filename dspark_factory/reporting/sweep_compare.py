"""Two sweeps side by side: which is faster at each batch size and count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_factory.reporting.sweep_summary import count_text, first_line, spread_text
from dspark_factory.reporting.tables import simple_table
from dspark_factory.sweeps.recommend import TIE, Candidate
from dspark_factory.sweeps.spread import Spread

_STYLES = {"faster": "green", "slower": "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One batch size and count in two sweeps; a sweep that lacks it has ``None``.

    Attributes:
        requests: batch size.
        num_draft_tokens: rows per request and step, anchor included; ``None`` is speculation off.
        before: speed in the first sweep.
        after: speed in the second.
        tie: share within which speeds are equal however quiet they are.
    """

    requests: int
    num_draft_tokens: int | None
    before: Spread | None
    after: Spread | None
    tie: float

    @property
    def ratio(self) -> float | None:
        """Speed of the second over that of the first."""
        if self.before is None or self.after is None or not self.before.median:
            return None
        return self.after.median / self.before.median

    @property
    def verdict(self) -> str:
        """The second sweep is ``faster``, ``slower`` or the ``same`` within the tie and both noises."""
        if self.before is None or self.after is None:
            return "only in B" if self.before is None else "only in A"
        if self.ratio is None:
            return "A has no speed"
        margin = max(self.tie, self.before.noise, self.after.noise)
        if abs(self.ratio - 1) <= margin:
            return "same"
        return "faster" if self.ratio > 1 else "slower"


def compare(before: Sequence[Candidate], after: Sequence[Candidate], *, tie: float = TIE) -> list[Compared]:
    """Speeds matched by batch size and count, in ascending order; of several in one sweep, the fastest."""
    first, second = _fastest(before), _fastest(after)
    keys = sorted({*first, *second}, key=lambda key: (key[0], key[1] or 1))
    return [
        Compared(
            requests=key[0],
            num_draft_tokens=key[1],
            before=first.get(key),
            after=second.get(key),
            tie=tie,
        )
        for key in keys
    ]


def several_jobs(candidates: Sequence[Candidate]) -> list[str]:
    """A sentence for every batch size and count that several jobs measured."""
    counts = Counter((item.requests, item.num_draft_tokens) for item in candidates)
    return [
        f"{count - 1} slower of {count} jobs at {requests} requests with num_draft_tokens {count_text(tokens)}"
        for (requests, tokens), count in counts.items()
        if count > 1
    ]


def print_comparison(compared: Sequence[Compared], left_out: Sequence[str], console: Console) -> None:
    """The table of both, then what could not be compared."""
    console.print(comparison_table(compared))
    for sentence in left_out:
        console.print(Text(f"left out: {first_line(sentence)}"), soft_wrap=True)


def comparison_table(compared: Sequence[Compared]) -> Table:
    """Both medians, their ratio and the verdict on the second."""
    table = simple_table(
        "Tokens per second",
        ("requests", "right"),
        ("num_draft_tokens", "right"),
        ("A", "right"),
        ("B", "right"),
        ("B / A", "right"),
        ("B is", "left"),
    )
    for item in compared:
        table.add_row(
            str(item.requests),
            count_text(item.num_draft_tokens),
            spread_text(item.before),
            spread_text(item.after),
            "" if item.ratio is None else f"{item.ratio:.3f}",
            Text(item.verdict, style=_STYLES.get(item.verdict, "")),
        )
    return table


def _fastest(candidates: Sequence[Candidate]) -> dict[tuple[int, int | None], Spread]:
    found: dict[tuple[int, int | None], Spread] = {}
    for item in candidates:
        key, speed = (item.requests, item.num_draft_tokens), item.tokens_per_second
        if key not in found or speed.median > found[key].median:
            found[key] = speed
    return found
