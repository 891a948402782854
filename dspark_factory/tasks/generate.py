"""The main job: decode the workload speculatively, and show that nothing was lost and what was won."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from dspark_factory.config.schema import Config, GenerateTask
from dspark_factory.engine.decoder import Decoder, Generation
from dspark_factory.engine.prompts import Prompts, load_prompts
from dspark_factory.errors import TaskError
from dspark_factory.factory import Assembly
from dspark_factory.reporting.generation import print_generation
from dspark_factory.results import RecordBuilder
from dspark_factory.tasks.building import prepared
from dspark_factory.tasks.progress import progress


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Decode every prompt, without and with speculation.

    Raises:
        TaskError: there is nothing to decode with, or greedy outputs differ: the message names the prompt and
            the first token.
    """
    task = config.task
    assert isinstance(task, GenerateTask)
    prompts = load_prompts(config.model, config.workload)
    with prepared(config, record) as assembly:
        plain = speculative = None
        if task.compare or not assembly.dims.speculation:
            plain = _decode(assembly, prompts, speculative=False)
        if assembly.dims.speculation:
            speculative = _decode(assembly, prompts, speculative=True)
        reports = assembly.reports()
    best = speculative or plain
    assert best is not None
    _record_runs(record, plain, speculative)
    if reports:
        record.measurements["providers"] = reports
    record.measurements["texts"] = [
        {"prompt": prompt, "text": prompts.decode(output)}
        for prompt, output in zip(prompts.texts, best.outputs, strict=True)
    ]
    if plain and speculative and config.workload.temperature == 0:
        record.lossless = plain.outputs == speculative.outputs
    print_generation(record.finish(), console, show_text=task.show_text)
    if record.lossless is False and plain and speculative:
        raise TaskError(_difference(plain, speculative))


def _decode(assembly: Assembly, prompts: Prompts, *, speculative: bool) -> Generation:
    workload = assembly.config.workload
    end_token = None if workload.ignore_end else prompts.end_token
    what = "speculative decoding" if speculative else "decoding"
    with progress(what, len(prompts.tokens) * workload.max_new_tokens, "tokens") as advance:
        decoder = Decoder(assembly, speculative=speculative, on_progress=advance)
        return decoder.generate(prompts.tokens, end_token=end_token)


def _record_runs(record: RecordBuilder, plain: Generation | None, speculative: Generation | None) -> None:
    runs = {"without_speculation": plain, "with_speculation": speculative}
    present = {name: run for name, run in runs.items() if run is not None}
    record.tokens_per_second = {name: run.tokens_per_second for name, run in present.items()}
    for name, generation in present.items():
        record.measurements[name] = run_measurements(generation)
    if speculative is not None:
        record.accept_length = speculative.total_statistics.accept_length


def run_measurements(generation: Generation) -> dict[str, Any]:
    """What a record keeps of one decoding run."""
    statistics = generation.total_statistics
    measured: dict[str, Any] = {
        "tokens": generation.tokens,
        "steps": generation.steps,
        "decode_seconds": generation.decode_seconds,
        "prefill_seconds": generation.prefill_seconds,
    }
    if statistics.steps:
        measured |= {
            "accept_length": statistics.accept_length,
            "acceptance_rate": statistics.acceptance_rate,
            "acceptance_per_position": statistics.acceptance_per_position,
            "accept_length_histogram": dict(sorted(statistics.histogram.items())),
        }
    return measured


def _difference(plain: Generation, speculative: Generation) -> str:
    for index, (expected, got) in enumerate(zip(plain.outputs, speculative.outputs, strict=True)):
        if expected != got:
            place = next(i for i, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1])
            return (
                f"speculative output differs from plain output in prompt {index} at output token {place}: "
                f"{got[place]} instead of {expected[place]}; with device.dtype=bfloat16 two nearly equal logits may "
                "round differently in batches of another size, try device.dtype=float32"
            )
    return "speculative and plain output have different lengths"
