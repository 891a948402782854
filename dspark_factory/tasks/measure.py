"""Decode speed at each batch size: rounds of the workload, and what a sweep's rows need besides."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console

from dspark_factory.config.schema import Config, MeasureTask
from dspark_factory.engine.decoder import Decoder, Generation
from dspark_factory.engine.prompts import Prompts, load_prompts
from dspark_factory.errors import TaskError
from dspark_factory.factory import Assembly
from dspark_factory.reporting.tables import simple_table
from dspark_factory.results import RecordBuilder
from dspark_factory.speculative.statistics import AcceptStatistics, accept_length_interval
from dspark_factory.tasks.building import prepared
from dspark_factory.tasks.progress import progress


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Decode the workload at each batch size, as often as asked for, all sizes in every round.

    Raises:
        TaskError: a batch size is larger than the request pool.
    """
    task = config.task
    assert isinstance(task, MeasureTask)
    prompts = load_prompts(config.model, config.workload)
    with prepared(config, record) as assembly:
        sizes = task.requests or list(assembly.dims.capture_requests)
        _require_room(sizes, assembly)
        ways = (True, False) if task.baseline and assembly.dims.speculation else (True,)
        rounds: dict[tuple[int, bool], list[Generation]] = {(size, way): [] for size in sizes for way in ways}
        tokens = sum(len(_texts(prompts, size)) for size, _ in rounds) * config.workload.max_new_tokens
        with progress("measuring", (task.repeats + 1) * tokens, "tokens") as advance:
            for index in range(task.repeats + 1):
                for (size, way), generations in rounds.items():
                    decoder = Decoder(assembly, speculative=way, most_requests=size, on_progress=advance)
                    generation = decoder.generate(_texts(prompts, size))
                    if index:
                        generations.append(generation)
        batches = [
            measured(assembly, size, rounds[size, True], rounds.get((size, False), [])) for size in sizes
        ]
        record.measurements["batches"] = batches
        record.measurements["uncaptured_batches"] = assembly.pipeline.uncaptured_batches
    _record_totals(record, [item for size in sizes for item in rounds[size, True]], batches)
    _print(batches, console)


def measured(
    assembly: Assembly, requests: int, rounds: list[Generation], baseline: list[Generation]
) -> dict[str, Any]:
    """What a record keeps of one batch size.

    Args:
        assembly: that decoded.
        requests: batch size.
        rounds: at least one.
        baseline: the same rounds without speculation, where they were run.
    """
    statistics = AcceptStatistics()
    for generation in rounds:
        statistics.merge(generation.total_statistics)
    by_prompt = [AcceptStatistics() for _ in rounds[0].statistics]
    for generation in rounds:
        for total, own in zip(by_prompt, generation.statistics, strict=True):
            total.merge(own)
    return {
        "requests": requests,
        "num_draft_tokens": assembly.dims.verify_width(requests) if assembly.dims.speculation else None,
        "tokens_per_second": [generation.tokens_per_second for generation in rounds],
        "baseline_tokens_per_second": [generation.tokens_per_second for generation in baseline],
        "tokens": rounds[0].tokens,
        "steps": rounds[0].steps,
        "drafts_offered": sum(statistics.offered),
        "accept_length": statistics.accept_length,
        "accept_length_interval": accept_length_interval(by_prompt),
        "conditional_acceptance": statistics.conditional_acceptance,
        "accept_length_histogram": dict(sorted(statistics.histogram.items())),
        "verify_milliseconds": [1e3 * median(generation.verify_seconds) for generation in rounds],
        "draft_milliseconds": [1e3 * median(generation.draft_seconds) for generation in rounds],
    }


def _texts(prompts: Prompts, size: int) -> list[list[int]]:
    """All prompts, again from the first until they fill a batch."""
    count = max(size, len(prompts.tokens))
    return [prompts.tokens[index % len(prompts.tokens)] for index in range(count)]


def _require_room(sizes: list[int], assembly: Assembly) -> None:
    most = assembly.dims.max_requests
    too_large = [size for size in sizes if not 1 <= size <= most]
    if too_large:
        raise TaskError(
            f"task.requests={too_large}: batch sizes go from 1 to pipeline.max_requests={most}; raise it, or measure "
            "smaller batches"
        )


def _record_totals(record: RecordBuilder, rounds: list[Generation], batches: list[dict[str, Any]]) -> None:
    record.tokens_per_second = {
        f"{batch['requests']} requests": median(batch["tokens_per_second"]) for batch in batches
    }
    total = AcceptStatistics()
    for generation in rounds:
        total.merge(generation.total_statistics)
    record.accept_length = total.accept_length


def _print(batches: list[dict[str, Any]], console: Console) -> None:
    table = simple_table(
        "Decode speed, medians over rounds",
        ("requests", "right"),
        ("num_draft_tokens", "right"),
        ("tokens/s", "right"),
        ("accept length", "right"),
        ("verify ms", "right"),
        ("draft ms", "right"),
    )
    for batch in batches:
        accept_length = batch["accept_length"]
        table.add_row(
            f"{batch['requests']}",
            "off" if batch["num_draft_tokens"] is None else f"{batch['num_draft_tokens']}",
            f"{median(batch['tokens_per_second']):.1f}",
            "" if accept_length is None else f"{accept_length:.2f}",
            f"{median(batch['verify_milliseconds']):.3f}",
            f"{median(batch['draft_milliseconds']):.3f}",
        )
    console.print(table)
