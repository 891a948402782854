"""A recommendation of draft-token counts from a user's own acceptance log and step costs. No torch, no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from dspark_factory.config.schema import Config, RecommendTask
from dspark_factory.errors import TaskError
from dspark_factory.reporting.recommendation import print_recommendation
from dspark_factory.results import RecordBuilder
from dspark_factory.sweeps.acceptance_log import AcceptanceLog, expected_tokens, read_acceptance_log
from dspark_factory.sweeps.cost_table import CostTable, read_cost_table
from dspark_factory.sweeps.input_files import InputFileError
from dspark_factory.sweeps.offline import candidates_from
from dspark_factory.sweeps.recommend import Candidate, Choice, Recommendation, recommend


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Predict the speed of every timed count, recommend one per batch size, record and print both.

    Raises:
        TaskError: a file cannot be used; one line for each.
        NoRecommendation: the two files do not answer the question.
    """
    task = config.task
    assert isinstance(task, RecommendTask)
    with record.stage("read"):
        log, costs = _read(task)
    with record.stage("recommend"):
        candidates, left_out = candidates_from(log, costs)
        # A count that the log cannot speak about is missing at every batch size, so it excuses no other gap.
        excuses = () if candidates else left_out
        found = recommend(candidates, excuses, noise_limit=task.noise_limit, tie=task.tie)
    predicted = {
        "choices": [_choice(choice) for choice in found.choices],
        "schedule": found.schedule,
        "left_out": [*left_out, *(reason for reason in found.left_out if reason not in left_out)],
        "notes": [*log.notes, *costs.notes, *_assumed(found)],
        "steps": len(log.accepted),
        "predicted": _predicted(candidates, log),
    }
    record.measurements["recommendation"] = predicted
    print_recommendation(found, predicted, console)


def _read(task: RecommendTask) -> tuple[AcceptanceLog, CostTable]:
    """Both files, or what is wrong with both."""
    reasons: list[str] = []
    log, costs = None, None
    try:
        log = read_acceptance_log(task.acceptance_log)
    except InputFileError as error:
        reasons.append(f"task.acceptance_log: {error}")
    try:
        costs = read_cost_table(task.cost_table)
    except InputFileError as error:
        reasons.append(f"task.cost_table: {error}")
    if log is None or costs is None:
        raise TaskError("\n".join(reasons))
    return log, costs


def _assumed(found: Recommendation) -> Iterator[str]:
    """A note on batch sizes below the first of the cost table."""
    first = found.choices[0].requests
    if first > 1:
        yield f"batches of fewer than {first} requests have no choice of their own; they take that of {first}"


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "requests": choice.requests,
        "num_draft_tokens": choice.num_draft_tokens,
        "tokens_per_second": choice.tokens_per_second.median,
        "gain": choice.gain,
        "tied": choice.tied,
    }


def _predicted(candidates: Sequence[Candidate], log: AcceptanceLog) -> list[dict[str, Any]]:
    """One row per candidate: batch size, count, speed and its scatter, accept length, gain over speculation off."""
    survival = log.survival()
    off = {
        item.requests: item.tokens_per_second.median for item in candidates if item.num_draft_tokens is None
    }
    rows = []
    for item in sorted(candidates, key=lambda item: (item.requests, item.count)):
        speed = item.tokens_per_second
        rows.append(
            {
                "requests": item.requests,
                "num_draft_tokens": item.num_draft_tokens,
                "tokens_per_second": speed.median,
                "noise": speed.noise,
                "accept_length": float(expected_tokens(survival, item.count)),
                "gain": speed.median / off[item.requests] if item.requests in off else None,
            }
        )
    return rows
