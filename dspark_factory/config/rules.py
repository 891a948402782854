"""Cross-field rules. Each returns its reasons, so that a user sees all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from dspark_factory.config.expected import DRAFT_TOKENS_EXPECTED
from dspark_factory.config.model_shape import resolve_model
from dspark_factory.config.schema import (
    SPECULATIVE,
    TASKS,
    Config,
    DeviceKind,
    GenerateTask,
    ModelSpec,
    NgramSpec,
    TrainTargetTask,
    VerifyLayout,
)
from dspark_factory.errors import ConfigError
from dspark_factory.registry import backend_plugins, buffer_plugins
from dspark_factory.registry.registry import unknown_name

MIN_DRAFT_TOKENS = 2
MAX_DRAFT_TOKENS = 128
"""DeepSeek-V4's sliding window: in a longer chain the last draft would no longer see its own anchor."""

REQUIRED_DIMENSIONS = (
    "vocab_size", "hidden_size", "layer_types", "num_attention_heads", "head_dim", "qk_rope_head_dim",
    "sliding_window", "csa_ratio", "hca_ratio", "index_n_heads", "index_head_dim", "index_topk",
    "max_position_embeddings", "rope_theta", "compress_rope_theta",
)  # fmt: skip


def check(config: Config) -> tuple[list[str], list[str]]:
    """Reasons why the configuration cannot be used, and warnings about what is risky."""
    reasons = list(_bounds(config))
    try:
        model = resolve_model(config.model)
    except ConfigError as error:
        return [*reasons, *error.reasons], []
    reasons += [reason for rule in RULES for reason in rule(config, model)]
    warnings = list(_drafter_block_size(config, model))
    if config.speculative.strict:
        return [*reasons, *(f"{warning} (speculative.strict=true)" for warning in warnings)], []
    return reasons, warnings


def _bounds(node: Any, path: str = "") -> Iterator[str]:
    """Lower bounds declared in the schema, over the whole tree."""
    if isinstance(node, dict):
        for name, item in node.items():
            yield from _bounds(item, f"{path}{name}.")
    if not is_dataclass(node):
        return
    for item in fields(node):
        value = getattr(node, item.name)
        low, above = item.metadata.get("low"), item.metadata.get("above")
        if isinstance(value, float) and not isfinite(value):
            yield f"{path}{item.name}={value}: write a finite number"
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if low is not None and value < low:
                yield f"{path}{item.name}={value} must be at least {low}"
            if above is not None and value <= above:
                yield f"{path}{item.name}={value} must be above {above}"
        yield from _bounds(value, f"{path}{item.name}.")


def _kinds(config: Config, model: ModelSpec) -> Iterator[str]:
    """A kind belongs to the options beside it, so it changes with the file of its group only."""
    known: dict[str, tuple[str, Mapping[str, type]]] = {
        "task": ("task", TASKS),
        "speculative": ("speculation", SPECULATIVE),
        "backend": ("attention backend", {name: plugin.spec for name, plugin in backend_plugins.items()}),
    }
    for group, (what, kinds) in known.items():
        spec = getattr(config, group)
        if spec.kind not in kinds:
            failure = backend_plugins.failure(spec.kind) if group == "backend" else None
            yield f"{group}.kind={spec.kind}: {failure or unknown_name(what, spec.kind, kinds)}"
        elif type(spec) is not kinds[spec.kind]:
            yield f"{group}.kind={spec.kind} does not fit {group}'s other options; write {group}={spec.kind}"


def _model(config: Config, model: ModelSpec) -> Iterator[str]:
    missing = [name for name in REQUIRED_DIMENSIONS if not getattr(model, name)]
    if len(missing) == len(REQUIRED_DIMENSIONS):
        yield "model has no dimensions; set model.checkpoint=FOLDER to read them from its config.json"
        return
    if missing:
        yield f"model has no {', '.join(missing)}; set them, or model.checkpoint=FOLDER to read them"
        return
    rotated = model.qk_rope_head_dim or 0
    if rotated % 2:
        yield f"model.qk_rope_head_dim={rotated} must be even: channels rotate in pairs"
    for name in ("head_dim", "index_head_dim"):
        if getattr(model, name) < rotated:
            yield f"model.{name}={getattr(model, name)} must be at least model.qk_rope_head_dim={rotated}"


def _draft_tokens(config: Config, model: ModelSpec) -> Iterator[str]:
    spec = config.speculative
    counts = [("num_draft_tokens", spec.num_draft_tokens, DRAFT_TOKENS_EXPECTED)]
    for index, count in enumerate(spec.draft_token_candidates):
        counts.append((f"draft_token_candidates[{index}]", count, "an integer of at least 2"))
    if spec.block_size is not None and spec.block_size < 1:
        counts = counts[1:]  # it follows from a block size that is refused already
    for name, count, wanted in counts:
        if count is None:
            continue
        if count < MIN_DRAFT_TOKENS:
            yield (
                f"speculative.{name}={count}: write {wanted}; it counts the rows that the target verifies "
                "per request, the anchor and the drafts"
            )
        if count > MAX_DRAFT_TOKENS:
            yield (
                f"speculative.{name}={count} is beyond the supported maximum {MAX_DRAFT_TOKENS}: in a longer "
                "chain the last draft does not see its anchor; write a smaller one"
            )
    if spec.kind == "off" and (spec.num_draft_tokens is not None or spec.draft_token_candidates):
        yield (
            "speculative=off takes no draft tokens, but num_draft_tokens or draft_token_candidates is set; "
            "choose speculative=ngram or speculative=dspark, or leave them out"
        )


def _schedule(config: Config, model: ModelSpec) -> Iterator[str]:
    spec = config.speculative
    if not spec.schedule:
        return
    if any(len(pair) != 2 or pair[0] is None for pair in spec.schedule):
        yield (
            "speculative.schedule: write pairs of a batch size and a count or null, as in [[1,6],[8,4],[32,null]]"
        )
        return
    sizes = [size for size, _ in spec.schedule]
    counts = [count for _, count in spec.schedule if count is not None]
    if sizes[0] != 1 or sizes != sorted(set(sizes), key=lambda size: size or 0):
        yield f"speculative.schedule: batch sizes {sizes} must begin at 1 and rise"
    for size, count in spec.schedule:
        if count is not None and not MIN_DRAFT_TOKENS <= count <= MAX_DRAFT_TOKENS:
            yield (
                f"speculative.schedule: count {count} at {size} requests; write null or an integer from "
                f"{MIN_DRAFT_TOKENS} to {MAX_DRAFT_TOKENS}, it counts the anchor and the drafts"
            )
    if spec.kind == "off" or spec.num_draft_tokens is None:
        yield "speculative.schedule is set, but speculation is off; choose speculative=ngram, or leave it out"
    elif not counts:
        yield "speculative.schedule has no count but null; write speculative=off, or a count of at least 2"
    elif spec.num_draft_tokens != max(counts):
        yield (
            f"speculative.num_draft_tokens={spec.num_draft_tokens} is not the largest count of speculative.schedule, "
            f"{max(counts)}; set one of them only"
        )


def _block_size(config: Config, model: ModelSpec) -> Iterator[str]:
    spec = config.speculative
    if spec.block_size is None or spec.block_size < 1 or spec.num_draft_tokens is None:
        return
    fitting = spec.block_size + 1
    if spec.num_draft_tokens != fitting:
        yield (
            f"speculative.block_size={spec.block_size} and speculative.num_draft_tokens="
            f"{spec.num_draft_tokens} disagree: num_draft_tokens counts the anchor too, so block_size="
            f"{spec.block_size} goes with num_draft_tokens={fitting}; set one of them only"
        )


def _drafter_block_size(config: Config, model: ModelSpec) -> Iterator[str]:
    spec = config.speculative
    if spec.kind != "dspark" or model.dspark is None or spec.num_draft_tokens is None:
        return
    used, trained = spec.num_draft_tokens - 1, model.dspark.block_size
    if used > trained:
        yield (
            f"speculative.num_draft_tokens={spec.num_draft_tokens} means a block size of {used}, but the "
            f"drafter of model {model.name} was trained for {trained} (model.dspark.block_size); "
            f"expect low acceptance behind position {trained}"
        )


def _ngram(config: Config, model: ModelSpec) -> Iterator[str]:
    spec = config.speculative
    if isinstance(spec, NgramSpec) and spec.min_match > spec.max_match >= 1:
        yield (
            f"speculative.min_match={spec.min_match} is above speculative.max_match={spec.max_match}, so "
            "nothing would be drafted; lower the one or raise the other"
        )


def _ragged(config: Config, model: ModelSpec) -> Iterator[str]:
    if config.speculative.verify_layout is VerifyLayout.ragged:
        for share in config.speculative.ragged_shares:
            if not 0 < share <= 1:
                yield f"speculative.ragged_shares has {share}; a share lies above 0 and is at most 1"


def _capture(config: Config, model: ModelSpec) -> Iterator[str]:
    pipeline = config.pipeline
    if not pipeline.capture_requests:
        yield "pipeline.capture_requests is empty; list at least one batch size, in requests"
    listed = sorted(set(pipeline.capture_requests))
    for requests in listed:
        if requests < 1:
            yield f"pipeline.capture_requests has {requests}; a batch has at least 1 request"
    above = [str(requests) for requests in listed if requests > pipeline.max_requests >= 1]
    if above:
        yield (
            f"pipeline.capture_requests has {', '.join(above)}, above the request pool "
            f"pipeline.max_requests={pipeline.max_requests}; raise the pool or drop the batch size"
        )


def _capacity(config: Config, model: ModelSpec) -> Iterator[str]:
    pipeline = config.pipeline
    for name in ("csa_ratio", "hca_ratio"):
        ratio = getattr(model, name)
        if ratio and pipeline.page_tokens >= 1 and pipeline.page_tokens % ratio:
            yield f"pipeline.page_tokens={pipeline.page_tokens} must be a multiple of model.{name}={ratio}"
    most = model.max_position_embeddings
    if most and pipeline.context_length > most:
        yield (
            f"pipeline.context_length={pipeline.context_length} is beyond the model's "
            f"max_position_embeddings={most}"
        )
    pool = pipeline.kv_pool_tokens
    if pool is not None and pool < pipeline.context_length:
        yield (
            f"pipeline.kv_pool_tokens={pool} cannot hold one request of "
            f"pipeline.context_length={pipeline.context_length}"
        )


def _buffers(config: Config, model: ModelSpec) -> Iterator[str]:
    for name in config.buffers:
        if name not in buffer_plugins:
            yield f"buffers.{name}: {buffer_plugins.unknown(name)}"


def _workload(config: Config, model: ModelSpec) -> Iterator[str]:
    workload = config.workload
    if workload.prompt is not None and workload.file is not None:
        yield "workload.prompt and workload.file are both set; set one of them"
    if workload.file is not None and not Path(workload.file).expanduser().is_file():
        yield f"workload.file={workload.file} does not exist"
    if isinstance(config.task, GenerateTask) and not (workload.prompts or workload.prompt or workload.file):
        yield "workload has no prompt; set workload.prompt, workload.prompts or workload.file"


def _training(config: Config, model: ModelSpec) -> Iterator[str]:
    task = config.task
    if not isinstance(task, TrainTargetTask):
        return
    if task.text_folder is not None and not Path(task.text_folder).expanduser().is_dir():
        yield f"task.text_folder={task.text_folder} is no folder"
    out = Path(task.checkpoint_out).expanduser()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        yield f"task.checkpoint_out={task.checkpoint_out} exists and is not an empty folder; name a new one"


def _device(config: Config, model: ModelSpec) -> Iterator[str]:
    if config.device.kind is DeviceKind.cuda and config.device.num_threads is not None:
        yield "device.num_threads concerns device.kind=cpu only"


RULES: tuple[Callable[[Config, ModelSpec], Iterator[str]], ...] = (
    _kinds, _model, _draft_tokens, _block_size, _schedule, _ngram, _ragged, _capture, _capacity, _buffers, _workload,
    _training, _device,
)  # fmt: skip
