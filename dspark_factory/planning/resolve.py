"""Configuration → dims: the one place where the geometry is decided."""

from __future__ import annotations

from dspark_factory.api import DType, Gate
from dspark_factory.config.model_shape import resolve_model
from dspark_factory.config.schema import BucketPolicy, Config, DeviceKind, ModelSpec, VerifyLayout
from dspark_factory.planning.dims import Dims, LayerType


def speculation_gate(config: Config, model: ModelSpec) -> Gate:
    """Whether speculation is on: requested and supported."""
    spec = config.speculative
    if spec.kind == "off":
        return Gate.off("speculative=off")
    if spec.num_draft_tokens is None:
        return Gate.off("speculative.num_draft_tokens=null")
    if spec.kind == "dspark" and model.dspark is None:
        return Gate.off(f"model {model.name} carries no DSpark drafter (model.dspark is null)")
    return Gate.on(f"speculative={spec.kind} with num_draft_tokens={spec.num_draft_tokens}")


def resolve_dims(config: Config) -> Dims:
    """Every number that a shape depends on, for a configuration that passed its rules."""
    model = resolve_model(config.model)
    pipeline, device, spec = config.pipeline, config.device, config.speculative
    on = speculation_gate(config, model).enabled
    schedule = tuple((first or 1, count) for first, count in spec.schedule) if on else ()
    planned = dict(schedule).values() if schedule else (spec.num_draft_tokens,)
    widths = {*planned, *spec.draft_token_candidates} if on else set()
    pool_tokens = pipeline.kv_pool_tokens or pipeline.max_requests * pipeline.context_length
    pages_per_request = -(-pipeline.context_length // pipeline.page_tokens)
    full = pipeline.max_requests * pages_per_request
    layer_types = tuple(LayerType(kind.value) for kind in model.layer_types or [])
    compressed = any(kind is not LayerType.SLIDING for kind in layer_types)
    return Dims(
        vocab_size=_known(model.vocab_size),
        hidden_size=_known(model.hidden_size),
        layer_types=layer_types,
        num_heads=_known(model.num_attention_heads),
        head_dim=_known(model.head_dim),
        rope_head_dim=_known(model.qk_rope_head_dim),
        sliding_window=_known(model.sliding_window),
        csa_ratio=_known(model.csa_ratio),
        hca_ratio=_known(model.hca_ratio),
        index_heads=_known(model.index_n_heads),
        index_head_dim=_known(model.index_head_dim),
        index_topk=_known(model.index_topk),
        num_draft_tokens=spec.num_draft_tokens if on else None,
        verify_widths=tuple(sorted(width for width in widths if width is not None)),
        schedule=schedule,
        ragged=on and spec.verify_layout is VerifyLayout.ragged,
        ragged_shares=tuple(spec.ragged_shares),
        max_requests=pipeline.max_requests,
        context_length=pipeline.context_length,
        page_tokens=pipeline.page_tokens,
        kv_pages=min(-(-pool_tokens // pipeline.page_tokens), full) if compressed else 0,
        capture_requests=tuple(sorted(set(pipeline.capture_requests))),
        max_batch_requests=(
            pipeline.max_requests
            if pipeline.bucket_policy is BucketPolicy.eager
            else max(pipeline.capture_requests)
        ),
        extend_rows=pipeline.extend_rows,
        extend_requests=min(pipeline.max_requests, pipeline.extend_rows),
        dtype=DType(device.dtype.value),
        kv_dtype=DType((device.kv_dtype or device.dtype).value),
        device_kind=device.kind.value,
        sampling=config.workload.temperature > 0,
        fused_kernels=device.fused_kernels and device.kind is DeviceKind.cuda and _fits_triton(model),
    )


def _fits_triton(model: ModelSpec) -> bool:
    """Triton's blocks are powers of two, and tensor cores take no fewer than 16 channels."""
    sizes = [_known(size) for size in (model.head_dim, model.index_head_dim, model.qk_rope_head_dim)]
    return all(size & (size - 1) == 0 for size in sizes) and min(sizes[:2]) >= 16


def _known(value: int | None) -> int:
    assert value is not None, "rules refuse a model with a missing dimension"
    return value
