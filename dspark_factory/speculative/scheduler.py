"""How many rows each request verifies: expected committed tokens against the measured cost of a step. Host side.

Confidence j of a request is the probability that its draft j is accepted, given that the drafts before it were; the
*survival* of draft j is the probability that it is committed. A request that verifies ``n`` rows, the anchor
included, commits one token and the sum of its first ``n − 1`` survivals in expectation.

A draft may only be left out for reasons known before that draft was sampled; otherwise the output is no longer
distributed as the target's own. ``allocate`` and ``early_stop`` keep that rule on the current confidences, and
``best_budget`` needs those of an earlier step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dspark_factory.errors import ConfigError, NoBucket

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]


def survival(confidences: Floats) -> Floats:
    """Probability that each draft and all before it are accepted, of the confidences' shape ``[..., block]``.

    Args:
        confidences: ``[..., block]`` in 0..1, each given that the drafts before it were accepted.
    """
    return np.cumprod(confidences, axis=-1)


class VerifyCost:
    """Seconds of a verify step, as a staircase over its rows: a step runs at the next row count that was measured.

    Args:
        rows: rising row counts, each of a captured graph; anchors count.
        seconds: of a step at each.
        base_seconds: added to every step, such as the time of drafting.

    Raises:
        ConfigError: the lists are empty or of different length, rows do not rise from 1, or a time is no finite
            number above zero; every reason at once.
    """

    def __init__(self, rows: Sequence[int], seconds: Sequence[float], *, base_seconds: float = 0.0) -> None:
        self.rows = np.asarray(rows, dtype=np.int64)
        self.seconds = np.asarray(seconds, dtype=np.float64)
        self.base_seconds = float(base_seconds)
        if reasons := self._reasons():
            raise ConfigError(reasons)

    def _reasons(self) -> list[str]:
        reasons = []
        if not len(self.rows) or self.rows.shape != self.seconds.shape:
            reasons.append(
                f"a verify cost lists {len(self.rows)} row counts and {len(self.seconds)} times; "
                "give one time for each of at least one row count"
            )
        if len(self.rows) and (self.rows[0] < 1 or bool((np.diff(self.rows) <= 0).any())):
            reasons.append(
                f"row counts of a verify cost are {self.rows.tolist()}; list them rising, from at least 1"
            )
        if not bool((np.isfinite(self.seconds) & (self.seconds > 0)).all()):
            reasons.append(
                f"times of a verify cost are {self.seconds.tolist()}; each must be finite and above 0"
            )
        if not (np.isfinite(self.base_seconds) and self.base_seconds >= 0):
            reasons.append(f"base_seconds={self.base_seconds} is no finite number of at least 0")
        return reasons

    @property
    def most_rows(self) -> int:
        """The largest step that the table knows."""
        return int(self.rows[-1])

    def at(self, rows: Integers) -> Floats:
        """Seconds of steps of these many rows, fp64 of the same shape: those of the smallest tier that holds them.

        Raises:
            NoBucket: a step is larger than every tier.
        """
        wanted = np.asarray(rows)
        if wanted.size and wanted.max() > self.most_rows:
            raise NoBucket(
                f"a step of {wanted.max()} rows is beyond the verify cost's last tier of {self.most_rows} rows; "
                "measure a larger tier, or run fewer requests at once"
            )
        return self.seconds[np.searchsorted(self.rows, wanted)] + self.base_seconds


def allocate(survivals: Floats, caps: Integers, budget: int) -> Integers:
    """Rows per request, ``[requests]`` int64: the anchors, and with what is left of the budget the likeliest drafts.

    Equal survivals go to the earlier position, then to the lower request. A draft never gets a row before its
    predecessor does. The anchors are not refused, so a budget below their number is exceeded; one above what the caps
    allow is not used up.

    Args:
        survivals: ``[requests, block]`` in 0..1, not rising along a request.
        caps: ``[requests]`` most rows of each request, the anchor included; 0 for padding requests.
        budget: rows of the whole step, anchors included.
    """
    lens = (np.asarray(caps) > 0).astype(np.int64)
    requests, _ = _by_survival(survivals, caps)
    return _admit(lens, requests, max(budget - int(lens.sum()), 0))


def early_stop(survivals: Floats, caps: Integers, cost: VerifyCost) -> Integers:
    """Rows per request, ``[requests]`` int64, by greedy admission that stops at the first draft that does not pay.

    Drafts are tried in the order of ``allocate``, those of survival zero never; the first that does not raise expected
    tokens per second ends the search. No draft is left out because of tokens behind it, so this is lossless on the
    *current* confidences. It finds the best throughput only where that rises to a single peak along the way, which
    a staircase of a cost does not (Algorithm 1 of the DSpark paper).

    Args:
        survivals: ``[requests, block]`` in 0..1, not rising along a request.
        caps: ``[requests]`` most rows of each request, the anchor included; 0 for padding requests.
        cost: of the step; drafts that its last tier does not hold are not admitted.

    Raises:
        NoBucket: not even the anchors fit the cost's last tier.
    """
    lens = (np.asarray(caps) > 0).astype(np.int64)
    requests, gains = _by_survival(survivals, caps)
    _, throughput = _throughput(int(lens.sum()), gains[gains > 0], cost)
    unpaid = throughput[1:] <= throughput[:-1]
    admitted = int(unpaid.argmax()) if unpaid.any() else len(unpaid)
    return _admit(lens, requests, admitted)


def best_budget(survivals: Floats, caps: Integers, cost: VerifyCost) -> int:
    """Rows of a step, anchors included, with the most expected committed tokens per second; of equals the fewest.

    Every budget is tried, so cliffs of the cost do not end the search, in O(R γ log(R γ)) for R requests of γ drafts.

    Lossless only on survivals of an *earlier* step. The search looks at all survivals at once, and the survival
    behind a draft depends on which token that draft is; with the current ones, a draft would be kept or left out by
    what it turned out to be, and kept drafts would be over-represented in the output. Survivals of an earlier step
    know nothing of the drafts that the budget limits. ``allocate`` then deals the budget by the current ones.

    Args:
        survivals: ``[requests, block]`` in 0..1, not rising along a request.
        caps: ``[requests]`` most rows of each request, the anchor included; 0 for padding requests.
        cost: of a step; budgets beyond its last tier cannot run and are no candidates.

    Raises:
        NoBucket: not even the anchors fit the cost's last tier.
    """
    anchors = int(np.count_nonzero(np.asarray(caps) > 0))
    gains = np.sort(np.asarray(survivals, dtype=np.float64)[_allowed(survivals, caps)])[::-1]
    budgets, throughput = _throughput(anchors, gains, cost)
    return int(budgets[throughput.argmax()])


def _throughput(anchors: int, gains: Floats, cost: VerifyCost) -> tuple[Integers, Floats]:
    """Budgets from the anchors alone to the last draft that fits a tier, and expected tokens per second of each."""
    gains = gains[: max(cost.most_rows - anchors, 0)]
    budgets = anchors + np.arange(len(gains) + 1)
    tokens = anchors + np.concatenate([[0.0], np.cumsum(gains, dtype=np.float64)])
    return budgets, tokens / cost.at(budgets)


def _allowed(survivals: Floats, caps: Integers) -> NDArray[np.bool_]:
    """``[requests, block]``: drafts that their request's cap has room for behind the anchor."""
    return np.arange(np.shape(survivals)[1]) < np.asarray(caps)[:, None] - 1


def _by_survival(survivals: Floats, caps: Integers) -> tuple[Integers, Floats]:
    """Request and survival of every allowed draft, best first; a stable sort of the position-major order."""
    survivals = np.asarray(survivals)
    position_major = _allowed(survivals, caps).T
    gains = survivals.T[position_major]
    order = np.argsort(-gains, kind="stable")
    return np.nonzero(position_major)[1][order], gains[order]


def _admit(lens: Integers, requests: Integers, count: int) -> Integers:
    """Anchors, and one row more for each of the first ``count`` drafts."""
    return lens + np.bincount(requests[:count], minlength=len(lens))
