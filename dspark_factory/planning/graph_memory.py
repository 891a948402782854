"""What captured graphs will hold between replays, estimated."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import DType
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.graph_keys import GraphKey


def graph_nbytes_estimate(dims: Dims, keys: Sequence[GraphKey]) -> int:
    """Largest intermediate results of the largest graph; all graphs share one pool, and a CPU's hold nothing.

    Counted are queries and output (twice where attention converts them), index queries and scores, and logits. What a
    model computes between its attention layers and what the driver keeps for the launches is not.
    """
    if dims.device_kind != "cuda" or not keys:
        return 0
    rows, element = max(key.rows for key in keys), dims.dtype.nbytes
    converted = 0 if dims.dtype is DType.BFLOAT16 else DType.BFLOAT16.nbytes
    per_row = 2 * dims.num_heads * dims.head_dim * (element + converted)
    if dims.count(LayerType.CSA):
        per_row += dims.index_heads * dims.index_head_dim * element
        per_row += dims.max_entries(LayerType.CSA) * DType.FLOAT32.nbytes
    return rows * (per_row + dims.vocab_size * element)
