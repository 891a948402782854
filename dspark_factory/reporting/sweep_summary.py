"""What the reports of a sweep have in common: its rows, its recommendation, and every value as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_factory.errors import DsparkError
from dspark_factory.reporting.console import readable_nbytes
from dspark_factory.sweeps.recommend import (
    NOISE_LIMIT,
    TIE,
    NoRecommendation,
    Recommendation,
    candidates_of,
    recommend,
)
from dspark_factory.sweeps.rows import SweepRow, Unreadable, read_rows
from dspark_factory.sweeps.spread import Spread

COLUMNS = (
    "job",
    "requests",
    "num_draft_tokens",
    "tokens/s",
    "accept length",
    "verify ms",
    "draft ms",
    "bytes",
    "graph bytes",
    "start-up s",
    "status",
)
"""Headers of :func:`row_cells`; the first and the last are words, the others numbers."""

# Control characters would reach the terminal, halves of surrogate pairs cannot be written as UTF-8, and the
# last ones turn the direction of the text that follows.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


class MissingPackage(DsparkError):
    """A part of the report needs a package that is not installed; the message says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """All that a report of a sweep shows.

    Attributes:
        name: of the sweep's folder.
        rows: one per job and batch size.
        unreadable: jobs whose record cannot be used.
        recommendation: ``None`` where there is none.
        refusal: why there is none.
        left_out: what the recommendation does not rest on, as sentences.
        environment: property → value → number of jobs that had it.
    """

    name: str
    rows: tuple[SweepRow, ...]
    unreadable: tuple[Unreadable, ...]
    recommendation: Recommendation | None
    refusal: str | None
    left_out: tuple[str, ...]
    environment: dict[str, dict[str, int]]

    @property
    def problems(self) -> dict[str, str]:
        """Job → why it does not count, jobs in their order."""
        found = {row.job: text for row in self.rows if (text := problem(row))}
        return found | {item.job: f"{item.state}: {item.reason}" for item in self.unreadable}


def summarize(folder: Path | str, *, noise_limit: float = NOISE_LIMIT, tie: float = TIE) -> SweepSummary:
    """Read the records below ``folder`` and judge them.

    Raises:
        RecordError: the folder does not exist.
    """
    root = Path(folder)
    rows, unreadable = read_rows(root)
    candidates, left_out = candidates_of(rows)
    left_out += map(str, unreadable)
    recommendation, refusal = None, None
    try:
        recommendation = recommend(candidates, left_out, noise_limit=noise_limit, tie=tie)
    except NoRecommendation as error:
        refusal = str(error)
    return SweepSummary(
        name=root.resolve().name,
        rows=tuple(rows),
        unreadable=tuple(unreadable),
        recommendation=recommendation,
        refusal=refusal,
        left_out=tuple(left_out) if recommendation is None else recommendation.left_out,
        environment=_environment(rows),
    )


def problem(row: SweepRow) -> str | None:
    """Why the row's job does not count, in one text that may have several lines; ``None`` when it does."""
    if row.status.value != "ok":
        return f"{row.status.value}: {row.failure or 'it did not say why'}"
    return f"no effect: {'; '.join(row.without_effect)}" if row.without_effect else None


def row_cells(row: SweepRow) -> tuple[str, ...]:
    """The row as text under :data:`COLUMNS`; the status has no reason."""
    return (
        printable(row.job),
        "" if row.requests is None else str(row.requests),
        # A job that broke before it knew its geometry does not say that speculation was off.
        "" if row.num_draft_tokens is None and row.requests is None else count_text(row.num_draft_tokens),
        spread_text(row.tokens_per_second),
        accept_length_text(row),
        "" if row.verify_milliseconds is None else f"{row.verify_milliseconds.median:.3f}",
        "" if row.draft_milliseconds is None else f"{row.draft_milliseconds.median:.3f}",
        "" if row.nbytes is None else readable_nbytes(row.nbytes),
        "" if row.graph_nbytes is None else readable_nbytes(row.graph_nbytes),
        "" if row.startup_seconds is None else f"{row.startup_seconds:.2f}",
        "no effect" if row.status.value == "ok" and row.without_effect else row.status.value,
    )


def count_text(num_draft_tokens: int | None) -> str:
    """``off`` without speculation; the count includes the anchor."""
    return "off" if num_draft_tokens is None else str(num_draft_tokens)


def spread_text(spread: Spread | None) -> str:
    """Median and noise: ``1,234.5 ± 0.8 %``."""
    return "" if spread is None else f"{spread.median:,.1f} ± {spread.noise * 100:.1f} %"


def accept_length_text(row: SweepRow) -> str:
    """Accept length and its 95 % interval: ``3.41 [3.30, 3.52]``."""
    if row.accept_length is None:
        return ""
    if row.accept_length_interval is None:
        return f"{row.accept_length:.2f}"
    low, high = row.accept_length_interval
    return f"{row.accept_length:.2f} [{low:.2f}, {high:.2f}]"


def printable(text: str) -> str:
    """The text without control characters and halves of surrogates, which get U+FFFD; lines stay."""
    return _UNPRINTABLE.sub("\ufffd", text)


def first_line(text: str) -> str:
    """First line of a text, printable."""
    return printable(text.splitlines()[0]) if text.strip() else ""


def _environment(rows: Sequence[SweepRow]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for environment in {row.job: row.environment for row in rows}.values():
        values: dict[str, Any] = dict(environment)
        versions = values.pop("versions", None)
        for name, value in (values | (versions if isinstance(versions, dict) else {})).items():
            counts = found.setdefault(str(name), {})
            shown = "not installed" if value is None else str(value)
            counts[shown] = counts.get(shown, 0) + 1
    return found
