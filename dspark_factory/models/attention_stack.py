"""Every attention layer of a model with synthetic inputs: its memory and its work without its weights.

Projections are replaced by table look-ups that depend on the token, so a replay with other tokens gives other
results and a stale address shows.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from dspark_factory.api import AttentionBackend, Buffers, StoresKv
from dspark_factory.attention.layer import IndexInputs, LayerInputs
from dspark_factory.attention.rope import inverse_frequencies
from dspark_factory.attention.tables import Frequencies, StepTables
from dspark_factory.config.schema import ModelSpec
from dspark_factory.memory.arena import torch_dtype
from dspark_factory.models.layers import CompressorWeights, LayerWeights, create_layers
from dspark_factory.planning.dims import Dims, LayerType

SYNTHETIC_TOKENS = 64
"""Rows of the look-up tables; token ids are taken modulo this."""


class AttentionStack:
    """Implements :class:`~dspark_factory.models.base.StepModel`; its vocabulary is the synthetic tokens.

    Attributes:
        layers: attention layers in order.
    """

    def __init__(
        self,
        model: ModelSpec,
        dims: Dims,
        buffers: Buffers,
        kv: StoresKv,
        backend: AttentionBackend,
        device: torch.device,
    ) -> None:
        assert model.rope_theta is not None
        assert model.compress_rope_theta is not None
        self._dims, self._device = dims, device
        self._generator = torch.Generator().manual_seed(0)
        self._dtype = torch_dtype(dims.dtype.value)
        self.frequencies = Frequencies(
            main=inverse_frequencies(dims.rope_head_dim, model.rope_theta).to(device),
            compress=inverse_frequencies(
                dims.rope_head_dim, model.compress_rope_theta, model.rope_scaling
            ).to(device),
        )
        self._tables = self._input_tables()
        self._head = self._random(dims.head_dim, SYNTHETIC_TOKENS)
        self._constants: list[Tensor] = []
        weights = [self._weights(layer_type) for layer_type in dims.layer_types]
        self.layers = create_layers(dims, buffers, kv, backend, weights)

    def hidden(self, token_ids: Tensor, tables: StepTables) -> Tensor:
        """``[rows, head_dim]``: one head of every layer, another in each, summed over layers."""
        tokens = token_ids % SYNTHETIC_TOKENS
        total = torch.zeros(len(tokens), self._dims.head_dim, dtype=self._dtype, device=self._device)
        for place, layer in enumerate(self.layers):
            out = layer.forward(self._inputs(layer.layer_type, tokens), tables)
            total = total + out[:, place % self._dims.num_heads]
        return total

    def logits(self, hidden: Tensor) -> Tensor:
        """``[rows, synthetic tokens]``."""
        return hidden @ self._head

    def tensors(self) -> Iterable[Tensor]:
        """Look-up tables and constants."""
        yield from (self._head, self.frequencies.main, self.frequencies.compress)
        yield from self._tables.values()
        yield from self._constants

    def _input_tables(self) -> dict[str, Tensor]:
        """Queries, and what else each layer type takes, side by side so that one look-up fetches it."""
        dims = self._dims
        sizes = {kind.value: sum(_widths(dims, kind)) for kind in set(dims.layer_types)}
        sizes["q"] = dims.num_heads * dims.head_dim
        return {name: self._random(SYNTHETIC_TOKENS, size) for name, size in sorted(sizes.items())}

    def _inputs(self, layer_type: LayerType, tokens: Tensor) -> LayerInputs:
        dims = self._dims
        q = self._tables["q"][tokens].view(-1, dims.num_heads, dims.head_dim)
        parts = self._tables[layer_type.value][tokens].split(_widths(dims, layer_type), dim=1)
        if layer_type is LayerType.SLIDING:
            return LayerInputs(q=q, kv=parts[0])
        if layer_type is LayerType.HCA:
            return LayerInputs(q=q, kv=parts[0], compress_kv=parts[1], compress_score=parts[2])
        index = IndexInputs(
            q=parts[3].unflatten(1, (dims.index_heads, dims.index_head_dim)),
            weights=parts[4],
            kv=parts[5],
            score=parts[6],
        )
        return LayerInputs(q=q, kv=parts[0], compress_kv=parts[1], compress_score=parts[2], index=index)

    def _weights(self, layer_type: LayerType) -> LayerWeights:
        dims = self._dims
        sinks = self._constant(self._random(dims.num_heads, dtype=torch.float32))
        if layer_type is LayerType.SLIDING:
            return LayerWeights(sinks=sinks)
        overlap = 2 if layer_type is LayerType.CSA else 1
        ratio = dims.ratio(layer_type)
        index = None
        if layer_type is LayerType.CSA:
            index = self._compressor_weights(ratio, 2 * dims.index_head_dim, dims.index_head_dim)
        compressor = self._compressor_weights(ratio, overlap * dims.head_dim, dims.head_dim)
        return LayerWeights(sinks=sinks, compressor=compressor, index=index)

    def _compressor_weights(self, ratio: int, channels: int, head_dim: int) -> CompressorWeights:
        bias = self._constant(self._random(ratio, channels, dtype=torch.float32))
        norm = self._constant(torch.ones(head_dim, device=self._device))
        return CompressorWeights(position_bias=bias, norm_weight=norm, norm_eps=1e-6)

    def _constant(self, tensor: Tensor) -> Tensor:
        self._constants.append(tensor)
        return tensor

    def _random(self, *sizes: int, dtype: torch.dtype | None = None) -> Tensor:
        values = torch.randn(*sizes, generator=self._generator)
        return values.to(device=self._device, dtype=dtype or self._dtype)


def _widths(dims: Dims, layer_type: LayerType) -> list[int]:
    """Channels of KV, compressor values and scores, index queries, head weights, index values and scores."""
    if layer_type is LayerType.SLIDING:
        return [dims.head_dim]
    if layer_type is LayerType.HCA:
        return [dims.head_dim] * 3
    wide, index = 2 * dims.head_dim, dims.index_heads * dims.index_head_dim
    return [
        dims.head_dim,
        wide,
        wide,
        index,
        dims.index_heads,
        2 * dims.index_head_dim,
        2 * dims.index_head_dim,
    ]
