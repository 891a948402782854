"""Reading what a step committed: the one place where a step meets the host again."""

from __future__ import annotations

from itertools import accumulate

from dspark_factory.api import Buffers, StepBatch
from dspark_factory.pipeline.batch import StepResult
from dspark_factory.planning.graph_keys import LayoutForm, Mode


def read_outputs(buffers: Buffers, batch: StepBatch) -> StepResult:
    """Committed tokens of the batch's real requests."""
    key, count = batch.key, len(batch.slots)
    logits = buffers.take("logits", key.rows) if "logits" in buffers else None
    if key.mode is not Mode.TARGET_VERIFY:
        tokens = [[token] for token in buffers.take("target_tokens", key.requests)[:count].tolist()]
        return StepResult(key=key, tokens=tokens, logits=logits)
    flat = buffers.take("target_tokens", key.rows).tolist()
    accept_lens = buffers.take("accept_lens", key.requests)[:count].tolist()
    if key.form is LayoutForm.RAGGED:
        starts = list(accumulate(batch.row_lens, initial=0))
    else:
        starts = [index * key.width for index in range(count)]
    tokens = [flat[start : start + length] for start, length in zip(starts, accept_lens, strict=False)]
    return StepResult(key=key, tokens=tokens, logits=logits)
