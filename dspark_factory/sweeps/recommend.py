"""Which draft-token count pays at which batch size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from dspark_factory.errors import DsparkError
from dspark_factory.sweeps.rows import SweepRow
from dspark_factory.sweeps.spread import Spread

NOISE_LIMIT = 0.15
"""A candidate whose rounds scatter more than this share of their median is left out."""
TIE = 0.01
"""Speeds closer than this share are equal, and the smaller count wins."""


class NoRecommendation(DsparkError):
    """The rows do not answer the question; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Decode speed of one draft-token count at one batch size.

    Attributes:
        requests: batch size.
        num_draft_tokens: rows per request and step, anchor included; ``None`` is speculation off.
        tokens_per_second: of each round.
        source: where it comes from, for messages.
    """

    requests: int
    num_draft_tokens: int | None
    tokens_per_second: Spread
    source: str

    @property
    def count(self) -> int:
        """Rows per request and step: 1 without speculation."""
        return self.num_draft_tokens or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The recommended count at one batch size.

    Attributes:
        requests: batch size.
        num_draft_tokens: the count, anchor included; ``None`` is speculation off.
        tokens_per_second: its speed.
        gain: its speed over that without speculation; ``None`` where that was not measured.
        tied: counts that are as fast within the tie rule.
    """

    requests: int
    num_draft_tokens: int | None
    tokens_per_second: Spread
    gain: float | None
    tied: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Choices by batch size, and what was left out of them, as sentences."""

    choices: tuple[Choice, ...]
    left_out: tuple[str, ...]

    @property
    def schedule(self) -> dict[int, int | None]:
        """First batch size of each stretch with one count; sizes below the first measured one take its count."""
        schedule: dict[int, int | None] = {}
        before: object = schedule  # differs from every count
        for choice in self.choices:
            if choice.num_draft_tokens != before:
                schedule[choice.requests if schedule else 1] = before = choice.num_draft_tokens
        return schedule


def candidates_of(rows: Sequence[SweepRow]) -> tuple[list[Candidate], list[str]]:
    """Measured candidates, and a sentence for every row that is none.

    A job that also decoded without speculation counts by its ratio to that, round by round, times the median of all
    such baselines at that batch size: what a machine did between two jobs drops out.
    """
    usable, left_out = [], []
    for row in rows:
        if row.status.value != "ok":
            first = (row.failure or "it did not say why").splitlines()[0]
            left_out.append(f"job {row.job} ({row.status.value}): {first}")
        elif row.without_effect:
            left_out.append(f"job {row.job}: {row.without_effect[0]}")
        elif row.requests is not None and row.tokens_per_second is not None:
            usable.append(row)
    found, baselines = [], _usual_baselines(usable)
    for row in usable:
        assert row.requests is not None
        speed = _against_its_baseline(row, baselines)
        source = f"job {row.job}"
        found.append(
            Candidate(
                requests=row.requests,
                num_draft_tokens=row.num_draft_tokens,
                tokens_per_second=speed,
                source=source,
            )
        )
    return found, list(dict.fromkeys(left_out))


def _usual_baselines(rows: Sequence[SweepRow]) -> dict[int | None, float]:
    """Batch size → median of what its jobs decode without speculation."""
    found: defaultdict[int | None, list[float]] = defaultdict(list)
    for row in rows:
        if row.baseline_tokens_per_second is not None:
            found[row.requests].append(row.baseline_tokens_per_second.median)
    return {requests: median(speeds) for requests, speeds in found.items()}


def _against_its_baseline(row: SweepRow, baselines: Mapping[int | None, float]) -> Spread:
    assert row.tokens_per_second is not None
    if row.requests not in baselines:
        return row.tokens_per_second
    usual = baselines[row.requests]
    if row.num_draft_tokens is None:
        return Spread((usual,))  # the baseline itself
    own = row.baseline_tokens_per_second
    if own is None or len(own.values) != len(row.tokens_per_second.values):
        return row.tokens_per_second
    pairs = zip(row.tokens_per_second.values, own.values, strict=True)
    return Spread(tuple(usual * fast / slow for fast, slow in pairs))


def recommend(
    candidates: Sequence[Candidate],
    left_out: Sequence[str] = (),
    *,
    noise_limit: float = NOISE_LIMIT,
    tie: float = TIE,
) -> Recommendation:
    """The fastest count at every batch size, by median.

    Speeds within ``tie``, or within the standard error of the faster one, are equal; then the smaller count is
    taken, which needs less memory. Candidates that scatter more than ``noise_limit`` are left out and named.

    Raises:
        NoRecommendation: nothing was measured, or a batch size lacks a count that another has and nothing that was left
            out explains it.
    """
    if not candidates:
        reasons = "; ".join(left_out) or "no record holds measured batches; run dspark -m +sweep=draft_tokens"
        raise NoRecommendation(f"nothing to recommend from: {reasons}")
    named = list(left_out)
    sizes = sorted({item.requests for item in candidates})
    if not left_out:
        _require_every_count(candidates, sizes)
    choices = []
    for size in sizes:
        here = sorted((item for item in candidates if item.requests == size), key=lambda item: item.count)
        quiet = []
        for item in here:
            noise = item.tokens_per_second.noise
            if noise > noise_limit:
                named.append(
                    f"{item.source} at {size} requests with {_count(item.num_draft_tokens)}: its rounds scatter by "
                    f"{noise:.0%}, more than {noise_limit:.0%}"
                )
            else:
                quiet.append(item)
        if quiet:
            choices.append(_choose(quiet, tie))
    if not choices:
        raise NoRecommendation("every candidate is too noisy: " + "; ".join(named))
    return Recommendation(choices=tuple(choices), left_out=tuple(named))


def _choose(candidates: Sequence[Candidate], tie: float) -> Choice:
    best = max(candidates, key=lambda item: item.tokens_per_second.median)
    speed = best.tokens_per_second
    margin = max(tie, speed.noise / sqrt(len(speed.values)))
    equal = [item for item in candidates if item.tokens_per_second.median >= speed.median * (1 - margin)]
    chosen = equal[0]  # candidates are in ascending order of counts
    off = next((item for item in candidates if item.num_draft_tokens is None), None)
    gain = None if off is None else chosen.tokens_per_second.median / off.tokens_per_second.median
    return Choice(
        requests=chosen.requests,
        num_draft_tokens=chosen.num_draft_tokens,
        tokens_per_second=chosen.tokens_per_second,
        gain=gain,
        tied=tuple(item.num_draft_tokens for item in equal[1:]),
    )


def _require_every_count(candidates: Sequence[Candidate], sizes: Sequence[int]) -> None:
    counts = {item.num_draft_tokens for item in candidates}
    lacking = []
    for size in sizes:
        missing = counts - {item.num_draft_tokens for item in candidates if item.requests == size}
        if missing:
            shown = ", ".join(sorted(map(_count, missing)))
            lacking.append(f"{size} requests lack {shown}")
    if lacking:
        raise NoRecommendation(f"not every count was measured at every batch size: {'; '.join(lacking)}")


def _count(num_draft_tokens: int | None) -> str:
    return "speculation off" if num_draft_tokens is None else f"num_draft_tokens={num_draft_tokens}"
