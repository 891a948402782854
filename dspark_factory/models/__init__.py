"""Models that a step runs: a real checkpoint, or the attention stack with synthetic inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark_factory.models.base import StepModel

if TYPE_CHECKING:
    import torch

    from dspark_factory.api import AttentionBackend, Buffers, StoresKv
    from dspark_factory.config.schema import ModelSpec
    from dspark_factory.planning.dims import Dims

__all__ = ["StepModel", "create_model"]


def create_model(
    model: ModelSpec,
    dims: Dims,
    buffers: Buffers,
    kv: StoresKv,
    backend: AttentionBackend,
    device: torch.device,
) -> StepModel:
    """The model of a configuration, bound to its KV store and states."""
    if model.checkpoint is None:
        from dspark_factory.models.attention_stack import AttentionStack

        return AttentionStack(model, dims, buffers, kv, backend, device)
    from dspark_factory.models.deepseek_v4 import load_deepseek_v4

    return load_deepseek_v4(model.checkpoint, dims, buffers, kv, backend, device)
