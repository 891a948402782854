"""A small geometry for tests of pure functions."""

from __future__ import annotations

from dspark_factory.api import DType
from dspark_factory.planning.dims import Dims, LayerType

DIMS = Dims(
    vocab_size=61,
    hidden_size=48,
    layer_types=(LayerType.SLIDING, LayerType.CSA, LayerType.HCA),
    num_heads=4,
    head_dim=16,
    rope_head_dim=8,
    sliding_window=8,
    csa_ratio=4,
    hca_ratio=16,
    index_heads=16,
    index_head_dim=16,
    index_topk=3,
    num_draft_tokens=6,
    verify_widths=(6,),
    ragged=True,
    ragged_shares=(0.5,),
    max_requests=4,
    context_length=128,
    page_tokens=32,
    kv_pages=16,
    capture_requests=(1, 2, 4),
    max_batch_requests=4,
    extend_rows=64,
    extend_requests=4,
    dtype=DType.FLOAT32,
    kv_dtype=DType.FLOAT32,
    device_kind="cpu",
    sampling=False,
)
