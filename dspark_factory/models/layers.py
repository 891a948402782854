"""Attention layers over the arena's KV buffers, one per model layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from dspark_factory.api import AttentionBackend, Buffers, StoresKv
from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.indexer import Indexer
from dspark_factory.attention.layer import AttentionLayer
from dspark_factory.planning.dims import Dims, LayerType

STATE_NAMES = {LayerType.CSA: "csa_state", LayerType.HCA: "hca_state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorWeights:
    """``position_bias [ratio, channels]`` fp32, ``norm_weight [head_dim]`` fp32 and the norm's epsilon."""

    position_bias: Tensor
    norm_weight: Tensor
    norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """What attention itself keeps of a layer's weights; projections stay with the model."""

    sinks: Tensor
    compressor: CompressorWeights | None = None
    index: CompressorWeights | None = None


def create_layers(
    dims: Dims, buffers: Buffers, kv: StoresKv, backend: AttentionBackend, weights: list[LayerWeights]
) -> list[AttentionLayer]:
    """One attention layer per model layer, each with its own part of the KV store and the states."""
    create = _layer_class(dims)
    seen = dict.fromkeys(LayerType, 0)
    layers = []
    for layer_type, layer_weights in zip(dims.layer_types, weights, strict=True):
        place = seen[layer_type]
        seen[layer_type] += 1
        layers.append(
            create(
                layer_type,
                kv=kv.layer(layer_type.value, place),
                sinks=layer_weights.sinks,
                backend=backend,
                compressor=_compressor(layer_type, buffers, place, layer_weights.compressor),
                indexer=_indexer(dims, buffers, place, layer_weights.index),
            )
        )
    return layers


def _layer_class(dims: Dims) -> Callable[..., AttentionLayer]:
    if not dims.fused_kernels:
        return AttentionLayer
    from dspark_factory.attention.fused.layer import FusedLayer

    return partial(FusedLayer, dims=dims)


def _compressor(
    layer_type: LayerType, buffers: Buffers, place: int, weights: CompressorWeights | None
) -> Compressor | None:
    if weights is None:
        return None
    return _create(layer_type, buffers[STATE_NAMES[layer_type]][place], weights)


def _indexer(dims: Dims, buffers: Buffers, place: int, weights: CompressorWeights | None) -> Indexer | None:
    if weights is None:
        return None
    compressor = _create(LayerType.CSA, buffers["csa_index_state"][place], weights)
    return Indexer(compressor, keys=buffers["index_keys"][place], topk=dims.index_topk)


def _create(layer_type: LayerType, state: Tensor, weights: CompressorWeights) -> Compressor:
    return Compressor(
        layer_type,
        state=state,
        position_bias=weights.position_bias,
        norm_weight=weights.norm_weight,
        norm_eps=weights.norm_eps,
    )
