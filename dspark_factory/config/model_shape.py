"""Model dimensions from a checkpoint's ``config.json``; plain JSON, no torch."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import dspark_factory.checkpoints
from dspark_factory.config.schema import CompressedLayerType, DsparkShape, ModelSpec
from dspark_factory.errors import ConfigError

_RATIO_TO_LAYER_TYPE = {
    0: CompressedLayerType.sliding_attention,
    4: CompressedLayerType.compressed_sparse_attention,
    128: CompressedLayerType.heavily_compressed_attention,
}
_SAME_NAME = (
    "vocab_size", "hidden_size", "num_attention_heads", "head_dim", "q_lora_rank", "o_groups", "o_lora_rank",
    "sliding_window", "index_n_heads", "index_head_dim", "index_topk", "max_position_embeddings", "rope_theta",
    "compress_rope_theta", "moe_intermediate_size", "n_routed_experts", "n_shared_experts",
    "num_experts_per_tok", "routed_scaling_factor", "hc_mult", "hc_sinkhorn_iters",
)  # fmt: skip


def checkpoint_folder(name: str) -> Path:
    """Folder of a shipped checkpoint (a bare name) or of the user's own (a path)."""
    shipped = Path(dspark_factory.checkpoints.__path__[0]) / name
    return shipped if shipped.is_dir() and "/" not in name else Path(name).expanduser()


def resolve_model(model: ModelSpec) -> ModelSpec:
    """The model with every dimension that its checkpoint states.

    Raises:
        ConfigError: the folder is no DeepSeek-V4 checkpoint, or a dimension given in the configuration differs
            from it; all differences at once.
    """
    if model.checkpoint is None:
        return model
    stated = read_shape(checkpoint_folder(model.checkpoint), shown=model.checkpoint)
    reasons = []
    for name, value in stated.items():
        given = getattr(model, name)
        if given is not None and given != value:
            reasons.append(
                f"model.{name}={_show(given)} but the checkpoint {model.checkpoint} has {_show(value)}; "
                f"leave model.{name} out to take the checkpoint's"
            )
    if reasons:
        raise ConfigError(reasons)
    return replace(model, **stated)


def read_shape(folder: Path, *, shown: str) -> dict[str, Any]:
    """Dimensions stated in ``folder/config.json``, by their name in :class:`ModelSpec`.

    Raises:
        ConfigError: there is no such file, it is no JSON object, or it describes another model.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ConfigError([f"model.checkpoint={shown}: {path} does not exist; name a checkpoint folder"])
    try:
        stated = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"model.checkpoint={shown}: {path} is not JSON: {error}"]) from error
    if not isinstance(stated, dict) or stated.get("model_type") != "deepseek_v4":
        kind = stated.get("model_type") if isinstance(stated, dict) else type(stated).__name__
        raise ConfigError([f"model.checkpoint={shown}: {path} describes {kind!r}, not 'deepseek_v4'"])
    shape = {name: stated[name] for name in _SAME_NAME if stated.get(name) is not None}
    shape |= _layers(stated) | _rotary(stated) | _drafter(stated)
    known = {item.name for item in fields(ModelSpec)}
    return {name: value for name, value in shape.items() if name in known}


def _layers(stated: dict[str, Any]) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    count = stated.get("num_hidden_layers")
    if stated.get("layer_types") is not None:
        shape["layer_types"] = [CompressedLayerType(name) for name in stated["layer_types"]][:count]
    elif stated.get("compress_ratios") is not None:
        shape["layer_types"] = [_RATIO_TO_LAYER_TYPE[ratio] for ratio in stated["compress_ratios"]][:count]
    rates = stated.get("compress_rates") or {}
    shape["csa_ratio"] = rates.get("compressed_sparse_attention", 4)
    shape["hca_ratio"] = rates.get("heavily_compressed_attention", 128)
    if stated.get("mlp_layer_types") is not None:
        shape["num_hash_layers"] = sum(kind == "hash_moe" for kind in stated["mlp_layer_types"])
    elif stated.get("num_hash_layers") is not None:
        shape["num_hash_layers"] = stated["num_hash_layers"]
    return shape


def _rotary(stated: dict[str, Any]) -> dict[str, Any]:
    shape: dict[str, Any] = {}
    if stated.get("qk_rope_head_dim") is not None:
        shape["qk_rope_head_dim"] = stated["qk_rope_head_dim"]
    elif stated.get("head_dim") is not None:
        shape["qk_rope_head_dim"] = int(stated["head_dim"] * stated.get("partial_rotary_factor", 64 / 512))
    parameters = stated.get("rope_parameters") or stated.get("rope_scaling") or {}
    compress = parameters.get("compress", parameters)
    if compress.get("rope_type", compress.get("type")) == "yarn":
        names = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")
        shape["rope_scaling"] = {name: float(compress[name]) for name in names if name in compress}
    return shape


def _drafter(stated: dict[str, Any]) -> dict[str, Any]:
    if stated.get("dspark_block_size") is None:
        return {}
    return {
        "dspark": DsparkShape(
            block_size=stated["dspark_block_size"],
            target_layer_ids=list(stated.get("dspark_target_layer_ids", [])),
            markov_rank=stated.get("dspark_markov_rank", 0),
        )
    }


def _show(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    return str(value.value if isinstance(value, Enum) else value)
