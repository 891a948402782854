"""Attention of one layer and of the whole stack, the configured backend beside others in one run."""

from __future__ import annotations

from copy import deepcopy
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from dspark_factory.benchmarks.ceilings import measure_ceilings
from dspark_factory.benchmarks.one_layer import measure_one_layer
from dspark_factory.benchmarks.stack import measure_stack
from dspark_factory.config.schema import BenchTask, CompressedLayerType, Config
from dspark_factory.errors import ConfigError, TaskError
from dspark_factory.factory import build, check_machine, resolve_device
from dspark_factory.planning.plan import plan
from dspark_factory.registry import backend_plugins
from dspark_factory.reporting.attention_bench import print_attention_bench
from dspark_factory.reporting.attention_plot import draw_attention_bench
from dspark_factory.results import RecordBuilder
from dspark_factory.tasks.building import prepared
from dspark_factory.tasks.progress import progress

OTHERS = ("flash_mla", "reference")
"""Contenders where none are named."""
ENTRIES = 1024
"""Compressed entries to select from in the benchmark of one layer: 4,096 tokens."""


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """One layer with every contender; the whole stack with all but the reference, which has no kernels to show.

    Raises:
        TaskError: speculation is off, or matplotlib is missing for ``task.plot``.
        ConfigError: a contender that was named cannot serve.
    """
    task = config.task
    assert isinstance(task, BenchTask)
    if config.speculative.kind == "off":
        raise TaskError(
            "the attention benchmark measures verify steps; set speculative=dspark or speculative=ngram"
        )
    if task.plot is not None and find_spec("matplotlib") is None:
        raise TaskError(f"task.plot={task.plot} needs matplotlib; pip install 'dspark-factory[plots]'")
    configs = _contenders(config, task, record)
    ceilings = measure_ceilings(resolve_device(config))
    record.measurements["ceilings"] = ceilings._asdict()
    with progress("one layer", len(task.requests), "batch sizes") as advance:
        record.measurements["one_layer"] = measure_one_layer(
            {name: _one_layer(item, task) for name, item in configs.items()},
            task.requests,
            ceilings,
            entries=ENTRIES,
            repeats=task.repeats,
            advance=advance,
        )
    stacks = {name: item for name, item in configs.items() if name != "reference" or len(configs) == 1}
    found: dict[str, Any] = record.measurements.setdefault("stack", {})
    for name, item in stacks.items():
        found[name] = _stack(item, task, record, ceilings, own=name == config.backend.kind)
    finished = record.finish()
    print_attention_bench(finished, console)
    if task.plot is not None:
        draw_attention_bench(finished, task.plot)
        console.print(f"plot: {task.plot}")


def _contenders(config: Config, task: BenchTask, record: RecordBuilder) -> dict[str, Config]:
    """The configured backend first; those that cannot serve are left out with a note, unless they were named."""
    configs = {config.backend.kind: config}
    for name in task.contenders or OTHERS:
        if name in configs:
            continue
        if name not in backend_plugins:
            if task.contenders:
                raise ConfigError(
                    [f"task.contenders: backend {name!r} is not installed; see dspark-plugins list"]
                )
            continue
        other = deepcopy(config)
        other.backend = backend_plugins[name].spec()
        try:
            check_machine(plan(other))
        except ConfigError as error:
            if task.contenders:
                raise
            record.measurements.setdefault("left_out", {})[name] = list(error.reasons)
            continue
        configs[name] = other
    return configs


def _one_layer(config: Config, task: BenchTask) -> Config:
    """One sparse layer with room for the largest batch."""
    small = deepcopy(config)
    ratio = small.model.csa_ratio
    assert ratio is not None
    small.model.layer_types = [CompressedLayerType.compressed_sparse_attention]
    small.pipeline.max_requests = max(task.requests)
    small.pipeline.capture_requests = sorted(task.requests)
    small.pipeline.context_length = ENTRIES * ratio
    small.pipeline.kv_pool_tokens = None
    return small


def _stack(
    config: Config, task: BenchTask, record: RecordBuilder, ceilings: Any, *, own: bool
) -> dict[str, Any]:
    """Build twice, so that the second start-up shows no compilation; then measure every batch size and context."""
    with build(config) as assembly:
        assembly.prepare()
        first = assembly.stage_seconds
    builder = record if own else RecordBuilder(record.task)
    with prepared(config, builder) as assembly:
        total = len(task.requests) * len(task.contexts)
        with progress(f"stack on {assembly.plan.backend}", total, "steps") as advance:
            rows = measure_stack(
                assembly, task.requests, task.contexts, ceilings, repeats=task.repeats, advance=advance
            )
        return {
            "rows": rows,
            "layers": len(assembly.dims.layer_types),
            "first_startup_seconds": first,
            "startup_seconds": assembly.stage_seconds,
            "nbytes": assembly.plan.nbytes_by_provider,
            "graph_nbytes": assembly.pipeline.graph_nbytes,
            "graphs": len(assembly.pipeline.graphs),
        }
