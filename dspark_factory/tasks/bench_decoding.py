"""Decode speed without and with speculation beside the transformers library, alternating in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from rich.console import Console

from dspark_factory.config.schema import BenchTask, Config
from dspark_factory.engine.decoder import Decoder
from dspark_factory.engine.prompts import Prompts, load_prompts
from dspark_factory.errors import TaskError
from dspark_factory.factory import Assembly
from dspark_factory.memory.arena import torch_dtype
from dspark_factory.models.deepseek_v4 import load_library_model
from dspark_factory.reporting.bench import print_bench
from dspark_factory.results import RecordBuilder
from dspark_factory.speculative.statistics import AcceptStatistics
from dspark_factory.tasks.building import prepared
from dspark_factory.tasks.progress import progress
from dspark_factory.tasks.soak import soak

Contender = Callable[[list[int]], list[int]]


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Every round decodes every prompt with every contender, one prompt at a time; ratios are within a round.

    Times are of whole generations, prefill included, because the library offers no other.

    Raises:
        TaskError: contenders disagree on greedy output, which would make the comparison meaningless.
    """
    task = config.task
    assert isinstance(task, BenchTask)
    prompts = load_prompts(config.model, config.workload)
    with prepared(config, record) as assembly:
        statistics = AcceptStatistics()
        contenders = _contenders(assembly, task, statistics)
        rounds, outputs = _rounds(contenders, prompts, task.repeats)
        if config.workload.temperature == 0:
            record.lossless = all(output == outputs["without_speculation"] for output in outputs.values())
        _record_rounds(record, rounds, outputs)
        record.accept_length = statistics.accept_length
        if task.soak_steps:
            record.measurements["soak"] = soak(assembly, prompts, task.soak_steps)
    print_bench(record.finish(), console)
    if record.lossless is False:
        raise TaskError("contenders disagree on greedy output; their speeds cannot be compared")


def _contenders(assembly: Assembly, task: BenchTask, statistics: AcceptStatistics) -> dict[str, Contender]:
    contenders: dict[str, Contender] = {}
    if task.transformers:
        contenders["transformers"] = _library(assembly)
    contenders["without_speculation"] = lambda prompt: _own(assembly, prompt, None)
    if assembly.dims.speculation:
        contenders["with_speculation"] = lambda prompt: _own(assembly, prompt, statistics)
    return contenders


def _own(assembly: Assembly, prompt: list[int], statistics: AcceptStatistics | None) -> list[int]:
    generation = Decoder(assembly, speculative=statistics is not None).generate([prompt])
    if statistics is not None:
        statistics.merge(generation.total_statistics)
    return generation.outputs[0]


def _library(assembly: Assembly) -> Contender:
    """The library's generate with its fastest capture-safe experts, same weights, type, device and threads."""
    config = assembly.config
    assert config.model.checkpoint is not None
    dtype = torch_dtype(assembly.dims.dtype.value)
    model: Any = load_library_model(config.model.checkpoint, assembly.arena.device, dtype)
    model.generation_config.eos_token_id = None

    def generate(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt], device=model.device)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=config.workload.max_new_tokens,
            do_sample=False,
        )
        return out[0, len(prompt) :].tolist()

    return generate


def _rounds(
    contenders: dict[str, Contender], prompts: Prompts, repeats: int
) -> tuple[list[dict[str, float]], dict[str, list[list[int]]]]:
    """Seconds of each contender in each round, and its outputs. A first round warms up and is not counted."""
    rounds: list[dict[str, float]] = []
    outputs: dict[str, list[list[int]]] = {}
    with progress(
        "benchmark", (repeats + 1) * len(contenders) * len(prompts.tokens), "generations"
    ) as advance:
        for index in range(repeats + 1):
            seconds = dict.fromkeys(contenders, 0.0)
            outputs = {name: [] for name in contenders}
            for prompt in prompts.tokens:
                for name, contender in contenders.items():
                    started = time.perf_counter()
                    outputs[name].append(contender(prompt))
                    seconds[name] += time.perf_counter() - started
                    advance(1)
            if index:
                rounds.append(seconds)
    return rounds, outputs


def _record_rounds(
    record: RecordBuilder, rounds: list[dict[str, float]], outputs: dict[str, list[list[int]]]
) -> None:
    tokens = {name: sum(map(len, output)) for name, output in outputs.items()}
    record.tokens_per_second = {
        name: median(tokens[name] / seconds[name] for seconds in rounds) for name in outputs
    }
    pairs = [
        ("without_speculation", "transformers"),
        ("with_speculation", "without_speculation"),
        ("with_speculation", "transformers"),
    ]
    ratios: dict[str, Any] = {}
    for fast, slow in pairs:
        if fast in outputs and slow in outputs:
            values = [seconds[slow] / seconds[fast] for seconds in rounds]
            ratios[f"{fast} / {slow}"] = {"median": median(values), "low": min(values), "high": max(values)}
    record.measurements |= {"tokens": tokens, "round_seconds": rounds, "speed_ratios": ratios}
