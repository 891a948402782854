"""Candidates without a model: speeds predicted from an acceptance log and a table of step costs. No torch."""

from __future__ import annotations

import numpy as np

from dspark_factory.sweeps.acceptance_log import AcceptanceLog, expected_tokens, read_acceptance_log
from dspark_factory.sweeps.cost_table import CostTable, read_cost_table
from dspark_factory.sweeps.recommend import Candidate
from dspark_factory.sweeps.spread import Spread

__all__ = ["candidates_from", "expected_tokens", "predicted_speed", "read_acceptance_log", "read_cost_table"]

RESAMPLES = 200
"""Bootstrap samples of the log's steps; their speeds are a candidate's spread."""
SOURCE = "the resampled log"


def predicted_speed(
    costs: CostTable, survival: np.ndarray, requests: int, num_draft_tokens: int
) -> np.ndarray:
    """Tokens per second: requests times the tokens committed per step, over the step's verify and draft time.

    Args:
        costs: that time this step.
        survival: [..., drafts], see :meth:`AcceptanceLog.survival`.
        requests: batch size.
        num_draft_tokens: rows per request, the anchor included.
    """
    step = costs.verify[requests, num_draft_tokens] + costs.draft.get(num_draft_tokens, 0.0)
    return 1e3 * requests * expected_tokens(survival, num_draft_tokens) / step


def candidates_from(log: AcceptanceLog, costs: CostTable) -> tuple[list[Candidate], list[str]]:
    """A candidate for every timed step that the log can speak about, and a sentence for every count that it cannot.

    The spread of a candidate is that of its speed over bootstrap samples of the log, the same samples for
    every candidate; times count as exact, so speculation off has one value. Acceptance is taken to depend on the
    position alone: not on the batch size, nor on how many drafts follow.
    """
    survival = log.survival()
    counts = sorted({count for _, count in costs.verify})
    left_out = {count: reason for count in counts if (reason := _unknown(log, survival, count))}
    samples = log.resampled_survival(RESAMPLES)
    found = [
        Candidate(
            requests=requests,
            num_draft_tokens=None,
            tokens_per_second=Spread((1e3 * requests / time,)),
            source=SOURCE,
        )
        for requests, time in sorted(costs.decode.items())
    ]
    found += [
        Candidate(
            requests=requests,
            num_draft_tokens=count,
            tokens_per_second=Spread(tuple(predicted_speed(costs, samples, requests, count).tolist())),
            source=SOURCE,
        )
        for requests, count in sorted(costs.verify)
        if count not in left_out
    ]
    return found, list(left_out.values())


def _unknown(log: AcceptanceLog, survival: np.ndarray, num_draft_tokens: int) -> str | None:
    """Why the log does not tell how many drafts of this count are accepted; ``None`` if it does."""
    drafts = num_draft_tokens - 1
    asked = f"num_draft_tokens={num_draft_tokens} verifies {drafts} drafts"
    if drafts > log.most_offered:
        return f"{asked}, and no step of the acceptance log offered more than {log.most_offered}"
    unseen = np.flatnonzero(np.isnan(survival[:drafts]))
    if unseen.size:
        return f"{asked}, and no step of the acceptance log that offered {unseen[0] + 1} accepted all but the last"
    return None
