"""A user's own acceptance log: how often drafts at each position are accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dspark_factory.config.rules import MAX_DRAFT_TOKENS
from dspark_factory.sweeps.input_files import csv_rows, integer, read_text, require_none

WANTED = (
    "write one line per request and verify step with the number of accepted drafts, bonus not included: a CSV "
    'column "accepted" (and "offered", the drafts of that step), or JSON lines like {"accepted": 3, "offered": 5}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLog:
    """Request steps of a log: one request's share of a verify step each.

    Attributes:
        accepted: int64 [steps], accepted drafts, bonus not included.
        offered: int64 [steps], drafts that the step offered.
        notes: what had to be assumed, as sentences.
    """

    accepted: np.ndarray
    offered: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def most_offered(self) -> int:
        """Drafts of the step that offered most."""
        return int(self.offered.max())

    def survival(self) -> np.ndarray:
        """float64 [most_offered]: probability that at least the first 1, 2, ... drafts are accepted.

        Product of the conditional acceptance of each position, which is counted over the steps that offered a
        draft there and accepted all before it: steps that offer fewer drafts do not lower what lies behind
        them. NaN where no such step exists. It assumes that a step that offers fewer accepts those as a longer one
        would.
        """
        pairs, counts = self._pairs()
        return _survival(pairs, counts[None, :].astype(float))[0]

    def resampled_survival(self, resamples: int, seed: int = 0) -> np.ndarray:
        """float64 [resamples, most_offered]: :meth:`survival` of bootstrap samples of the steps.

        Steps count as independent, because a log does not say which of them belong to one text.
        """
        pairs, counts = self._pairs()
        steps = int(counts.sum())
        # Drawing steps with replacement is drawing how often each distinct step occurs.
        drawn = np.random.default_rng(seed).multinomial(steps, counts / steps, size=resamples)
        return _survival(pairs, drawn.astype(float), counts.astype(float))

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct (accepted, offered) [2, pairs], and how often each occurs [pairs]."""
        return np.unique(np.stack([self.accepted, self.offered]), axis=1, return_counts=True)


def expected_tokens(survival: np.ndarray, num_draft_tokens: int) -> np.ndarray:
    """Tokens committed per request and verify step, bonus included: 1 + the sum of the drafts' survival.

    Args:
        survival: [..., drafts].
        num_draft_tokens: rows that are verified, the anchor included.
    """
    return 1 + survival[..., : num_draft_tokens - 1].sum(axis=-1)


def read_acceptance_log(path: Path | str) -> AcceptanceLog:
    """Accepted drafts per request and verify step, from CSV or JSON lines.

    Without drafts offered, every step is taken to have offered the largest count accepted; a note says so.

    Raises:
        InputFileError: the file cannot be read, holds no step, or has bad lines; all of them at once.
    """
    steps: list[tuple[int, int | None]] = []
    bad: list[str] = []
    text = read_text(path)
    for number, values in _json_lines(text) if _is_json(text, path) else _csv_lines(text, path):
        try:
            steps.append(_step(values))
        except ValueError as error:
            bad.append(f"line {number}: {error}")
    lacking = sum(offered is None for _, offered in steps)
    if not bad and 0 < lacking < len(steps):
        bad.append(f'{lacking} of {len(steps)} steps lack "offered", which the others have')
    if not bad and not steps:
        bad.append("it holds no step")
    require_none(bad, path, WANTED)
    accepted = np.array([step[0] for step in steps], dtype=np.int64)
    if not lacking:
        return AcceptanceLog(accepted=accepted, offered=np.array([step[1] for step in steps], dtype=np.int64))
    most = int(accepted.max())
    note = (
        f"the acceptance log does not say how many drafts a step offered; taken as {most}, the most accepted"
    )
    return AcceptanceLog(accepted=accepted, offered=np.full_like(accepted, most), notes=(note,))


def _survival(pairs: np.ndarray, counts: np.ndarray, filling: np.ndarray | None = None) -> np.ndarray:
    """Survival [samples, drafts] of samples that hold pairs [2, pairs] as often as counts [samples, pairs].

    ``filling`` are the counts of the whole log, for positions that a sample does not reach.
    """
    accepted, offered = pairs[:, :, None]
    drafts = np.arange(1, int(pairs[1].max()) + 1)
    passes, reaches = accepted >= drafts, (offered >= drafts) & (accepted >= drafts - 1)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: nobody knows
        conditional = (counts @ passes) / (counts @ reaches)
        if filling is not None:
            whole = (filling @ passes) / (filling @ reaches)
            conditional = np.where(np.isnan(conditional), whole, conditional)
    survival = np.cumprod(conditional, axis=1)
    survival[np.logical_or.accumulate(conditional == 0, axis=1)] = 0  # behind a draft that never passes
    return survival


def _is_json(text: str, path: Path | str) -> bool:
    return text.lstrip().startswith("{") or Path(path).suffix in (".jsonl", ".ndjson", ".json")


def _json_lines(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            yield number, f"{line[:40]!r} is no JSON"
        else:
            yield number, value if isinstance(value, dict) else {"accepted": value}


def _csv_lines(text: str, path: Path | str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Cells by column; a first line that begins with a number is no header."""
    names: list[str] | None = None
    for number, cells in csv_rows(text, path):
        if names is None and _is_number(cells[0]):
            names = ["accepted"]
        elif names is None:
            names = cells
            if "accepted" not in names:
                yield number, f'the columns are {", ".join(names)}, and none is "accepted"'
                return
            continue
        if len(cells) == len(names):
            yield number, dict(zip(names, cells, strict=True))
        else:
            yield number, f"it has {len(cells)} cells, and the columns are {', '.join(names)}"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _step(values: dict[str, Any] | str) -> tuple[int, int | None]:
    """Accepted and offered drafts; a text instead of values says what is wrong with the line."""
    most = MAX_DRAFT_TOKENS - 1
    if isinstance(values, str):
        raise ValueError(values)
    if "accepted" not in values:
        raise ValueError('it has no "accepted"')
    accepted = integer(values["accepted"], "accepted", 0, most)
    if "offered" not in values:
        return accepted, None
    offered = integer(values["offered"], "offered", 0, most)
    if accepted > offered:
        raise ValueError(f"accepted={accepted} is more than offered={offered}")
    return accepted, offered
