"""A real DeepSeek-V4 checkpoint: the transformers model with this project's attention in place of its own.

Everything outside attention (hyper-connections, mixture of experts, norms, head) is the library's and is called as
it is; rows lie along its sequence dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DeepseekV4ForCausalLM
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4RMSNorm
from transformers.utils import logging as transformers_logging

from dspark_factory.api import AttentionBackend, Buffers, StoresKv
from dspark_factory.attention.layer import AttentionLayer, IndexInputs, LayerInputs
from dspark_factory.attention.tables import Frequencies, StepTables
from dspark_factory.config.model_shape import checkpoint_folder
from dspark_factory.errors import CheckpointError
from dspark_factory.memory.arena import torch_dtype
from dspark_factory.models.layers import CompressorWeights, LayerWeights, create_layers
from dspark_factory.planning.dims import Dims


def experts_implementation(device: torch.device, dtype: torch.dtype) -> str:
    """The library's fastest experts that can be captured.

    Its own loop over experts asks the device which experts were hit, and so does its grouped product on CUDA for
    other types than bfloat16.
    """
    return "batched_mm" if device.type == "cuda" and dtype is not torch.bfloat16 else "grouped_mm"


class RowAttention(nn.Module):
    """Drop-in for the library's attention module: its projections, this project's attention between them."""

    def __init__(self, attention: Any, layer: AttentionLayer) -> None:
        super().__init__()
        self.projections = attention
        self._layer = layer

    def forward(self, hidden_states: Tensor, *, tables: StepTables, **_: Any) -> tuple[Tensor, None]:
        """``[1, rows, hidden]`` to the same shape."""
        own = self.projections
        x = hidden_states[0]
        residual = own.q_a_norm(own.q_a_proj(x))
        q = own.q_b_norm(own.q_b_proj(residual).view(x.shape[0], -1, own.head_dim))
        kv = own.kv_norm(own.kv_proj(x))
        out = self._layer.forward(self._inputs(x, residual, q, kv), tables)
        grouped = out.reshape(1, x.shape[0], own.config.o_groups, -1)
        return own.o_b_proj(own.o_a_proj(grouped).flatten(2)), None

    def _inputs(self, x: Tensor, residual: Tensor, q: Tensor, kv: Tensor) -> LayerInputs:
        compressor = self.projections.compressor
        if compressor is None:
            return LayerInputs(q=q, kv=kv)
        indexer = getattr(compressor, "indexer", None)
        index = None
        if indexer is not None:
            index = IndexInputs(
                q=indexer.q_b_proj(residual).view(x.shape[0], -1, indexer.head_dim),
                weights=indexer.scorer.weights_proj(x),
                kv=indexer.kv_proj(x),
                score=indexer.gate_proj(x),
            )
        return LayerInputs(
            q=q, kv=kv, compress_kv=compressor.kv_proj(x), compress_score=compressor.gate_proj(x), index=index
        )


class DeepseekV4(nn.Module):
    """A loaded model bound to KV buffers; implements :class:`~dspark_factory.models.base.StepModel`.

    Args:
        model: the library's model; its attention modules are replaced.
        dims: geometry.
        buffers: with the states.
        kv: its KV store.
        backend: attends.
    """

    def __init__(
        self,
        model: DeepseekV4ForCausalLM,
        dims: Dims,
        buffers: Buffers,
        kv: StoresKv,
        backend: AttentionBackend,
    ) -> None:
        super().__init__()
        self._model = model
        library: Any = model.model
        rotary = library.rotary_emb
        self.frequencies = Frequencies(
            main=rotary.main_inv_freq.float(), compress=rotary.compress_inv_freq.float()
        )
        weights = [_layer_weights(layer.self_attn) for layer in library.layers]
        layers = create_layers(dims, buffers, kv, backend, weights)
        for layer, attention in zip(library.layers, layers, strict=True):
            layer.self_attn = RowAttention(layer.self_attn, attention)

    def hidden(self, token_ids: Tensor, tables: StepTables) -> Tensor:
        """``[rows, hidden]`` after the final norm."""
        model: Any = self._model.model
        ids = token_ids.unsqueeze(0)
        streams = model.embed_tokens(ids).unsqueeze(2).expand(-1, -1, model.config.hc_mult, -1).contiguous()
        for layer in model.layers:
            streams = layer(streams, input_ids=ids, tables=tables)
        return model.norm(model.hc_head(streams))[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """``[rows, vocabulary]``."""
        return self._model.lm_head(hidden)

    def tensors(self) -> Iterable[Tensor]:
        """Weights, the library's buffers and the rotary frequencies."""
        return chain(self.parameters(), self.buffers(), (self.frequencies.main, self.frequencies.compress))


def load_deepseek_v4(
    checkpoint: str,
    dims: Dims,
    buffers: Buffers,
    kv: StoresKv,
    backend: AttentionBackend,
    device: torch.device,
) -> DeepseekV4:
    """A checkpoint bound to its KV store; errors as in :func:`load_library_model`."""
    model = load_library_model(checkpoint, device, torch_dtype(dims.dtype.value))
    return DeepseekV4(model, dims, buffers, kv, backend)


def load_library_model(checkpoint: str, device: torch.device, dtype: torch.dtype) -> DeepseekV4ForCausalLM:
    """The library's model from a checkpoint folder in its format, from disk; nothing is downloaded.

    Raises:
        CheckpointError: the folder's weights are missing, damaged or do not fit its ``config.json``.
    """
    folder = checkpoint_folder(checkpoint)
    transformers_logging.disable_progress_bar()
    try:
        loaded: Any = DeepseekV4ForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # the library raises anything from OSError to SafetensorError
        raise CheckpointError(f"model.checkpoint={checkpoint}: cannot load {folder}: {error}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise CheckpointError(f"model.checkpoint={checkpoint}: {folder} lacks weights: {shown}")
    model = model.to(device).eval().requires_grad_(False)
    model.set_experts_implementation(experts_implementation(device, dtype))
    _let_norms_keep_the_type(model, dtype)
    return model


def _let_norms_keep_the_type(model: DeepseekV4ForCausalLM, dtype: torch.dtype) -> None:
    """Older releases keep norm weights in fp32 and then return fp32, which their own projections refuse."""
    for module in model.modules():
        if isinstance(module, DeepseekV4RMSNorm):
            probe = torch.ones(1, module.weight.shape[0], dtype=dtype, device=module.weight.device)
            if module(probe).dtype is not dtype:
                module.to(dtype)


def _layer_weights(attention: Any) -> LayerWeights:
    compressor = attention.compressor
    if compressor is None:
        return LayerWeights(sinks=attention.sinks)
    indexer = getattr(compressor, "indexer", None)
    return LayerWeights(
        sinks=attention.sinks,
        compressor=_compressor_weights(compressor),
        index=None if indexer is None else _compressor_weights(indexer),
    )


def _compressor_weights(module: Any) -> CompressorWeights:
    return CompressorWeights(
        position_bias=module.position_bias,
        norm_weight=module.kv_norm.weight,
        norm_eps=module.kv_norm.variance_epsilon,
    )
