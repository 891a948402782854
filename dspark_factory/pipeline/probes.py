"""Inputs for warm-up, lint and capture: they exercise a shape and touch scratch memory only."""

from __future__ import annotations

from dspark_factory.api import StepBatch
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import GraphKey, LayoutForm


def neutral_batch(dims: Dims, key: GraphKey) -> StepBatch:
    """Full rows in the scratch slot from position 0."""
    return _scratch_batch(dims, key, prefix=0, token=0)


def probe_batches(dims: Dims, key: GraphKey) -> tuple[StepBatch, StepBatch]:
    """Two batches of one key that differ in every host value: lengths, tokens, rows and numbers."""
    prefix = min(dims.context_length - key.width, dims.page_tokens + 1)
    first = _scratch_batch(dims, key, prefix=0, token=0)
    second = _scratch_batch(dims, key, prefix=max(prefix, 0), token=1, row_len=1)
    return first, second


def _scratch_batch(
    dims: Dims, key: GraphKey, *, prefix: int, token: int, row_len: int | None = None
) -> StepBatch:
    row_lens = [row_len or key.width] * key.requests
    if key.form is LayoutForm.RAGGED:
        row_lens = _spread(key.rows if row_len is None else key.requests, key.requests, key.width)
    return StepBatch(
        key=key,
        slots=[dims.scratch_slot] * key.requests,
        prefix_lens=[prefix] * key.requests,
        row_lens=row_lens,
        token_ids=[[token] * row_len for row_len in row_lens],
        temperatures=[0.0 if token else 1.0] * key.requests,
        uniforms=[[0.25 + token / 2] * key.width] * key.requests,
    )


def _spread(rows: int, requests: int, width: int) -> list[int]:
    """``rows`` over the requests as evenly as they go, at most ``width`` each."""
    base, extra = divmod(rows, requests)
    return [min(base + (index < extra), width) for index in range(requests)]
