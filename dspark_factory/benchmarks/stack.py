"""Verify steps of the whole attention stack: from the staged batch to committed tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from dspark_factory.api import StepBatch
from dspark_factory.benchmarks.ceilings import Ceilings
from dspark_factory.benchmarks.shares import kernel_shares
from dspark_factory.benchmarks.synthetic import fill_kv, verify_batch
from dspark_factory.benchmarks.timing import microseconds, synchronize
from dspark_factory.factory import Assembly
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.dims import LayerType

HOST_STEPS = 50
Advance = Callable[[int], None]


def measure_stack(
    assembly: Assembly,
    requests: Sequence[int],
    contexts: Sequence[int],
    ceilings: Ceilings,
    *,
    repeats: int,
    advance: Advance,
) -> list[dict[str, Any]]:
    """One row per batch size and context that fits in the pools.

    Args:
        assembly: prepared; its KV is overwritten.
        requests: batch sizes.
        contexts: tokens of every request.
        ceilings: of the device.
        repeats: rounds.
        advance: told after each row.
    """
    fill_kv(assembly)
    found = []
    for context in contexts:
        for count in requests:
            if fits(assembly, count, context):
                found.append(_measure(assembly, count, context, ceilings, repeats))
            advance(1)
    for row in found:  # last, because a profiler that has run once slows every later launch
        batch = verify_batch(assembly.dims, requests=row["requests"], context=row["context"])
        row |= kernel_shares(partial(_steps, assembly, batch, 3, eager=False))
    return found


def fits(assembly: Assembly, requests: int, context: int) -> bool:
    """Whether so many requests of so many tokens have room."""
    dims = assembly.dims
    pages = requests * -(-context // dims.page_tokens)
    return requests <= dims.max_batch_requests and context <= dims.context_length and pages <= dims.kv_pages


def _measure(
    assembly: Assembly, requests: int, context: int, ceilings: Ceilings, repeats: int
) -> dict[str, Any]:
    batch = verify_batch(assembly.dims, requests=requests, context=context)
    steps = 10 if assembly.arena.device.type == "cuda" else 1
    graph, eager = [], []
    for index in range(repeats + 1):
        replayed = _device_time(assembly, batch, steps, eager=False)
        ran = _device_time(assembly, batch, max(steps // 5, 1), eager=True)
        if index:
            graph.append(replayed)
            eager.append(ran)
    attention = _attention_operations(assembly, requests, context)
    row: dict[str, Any] = {
        "requests": requests,
        "context": context,
        "microseconds": median(graph),
        "low": min(graph),
        "high": max(graph),
        "eager_microseconds": median(eager),
        "eager_ratio": median(slow / fast for slow, fast in zip(eager, graph, strict=True)),
        "attention_tflops": attention / median(graph) / 1e6,
        "matrix_share": attention / median(graph) * 1e6 / ceilings.matrix_flops,
    }
    return row | _host_times(assembly, batch)


def _steps(assembly: Assembly, batch: StepBatch, steps: int, *, eager: bool) -> None:
    launched = batch
    for _ in range(steps):
        launched = assembly.pipeline.launch(batch, eager=eager)
    assembly.pipeline.result(launched)


def _device_time(assembly: Assembly, batch: StepBatch, steps: int, *, eager: bool) -> float:
    """Microseconds of one of several steps launched one after another, copies in and out included."""
    work = partial(_steps, assembly, batch, steps, eager=eager)
    return microseconds(work, assembly.arena.device) / steps


def _host_times(assembly: Assembly, batch: StepBatch) -> dict[str, Any]:
    """Medians of what the host does in a step while the device has nothing left to do."""
    pipeline, device = assembly.pipeline, assembly.arena.device
    launches, reads, makes = [], [], []
    for _ in range(HOST_STEPS):
        started = time.perf_counter()
        fresh = make_batch(
            assembly.dims,
            batch.key.mode,
            slots=batch.slots,
            prefix_lens=batch.prefix_lens,
            token_ids=batch.token_ids,
        )
        made = time.perf_counter()
        launched = pipeline.launch(fresh)
        done = time.perf_counter()
        synchronize(device)
        arrived = time.perf_counter()
        pipeline.result(launched)
        reads.append(time.perf_counter() - arrived)
        makes.append(made - started)
        launches.append(done - made)
    return {
        "host_batch_microseconds": median(makes) * 1e6,
        "host_launch_microseconds": median(launches) * 1e6,
        "host_read_microseconds": median(reads) * 1e6,
    }


def _attention_operations(assembly: Assembly, requests: int, context: int) -> int:
    """Floating-point operations of attention itself, two products over every listed key."""
    dims = assembly.dims
    keys = 0
    for kind in dims.layer_types:
        entries = context // dims.ratio(kind) if dims.ratio(kind) else 0
        listed = min(entries, dims.selected_entries) if kind is LayerType.CSA else entries
        keys += min(context, dims.sliding_window) + listed
    return 4 * requests * dims.max_width * dims.num_heads * dims.head_dim * keys
