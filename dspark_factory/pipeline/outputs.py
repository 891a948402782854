"""Reading what a step committed, from the mirrors of the buffers that the host reads."""

from __future__ import annotations

from itertools import accumulate

from dspark_factory.api import Buffers, StepBatch
from dspark_factory.pipeline.batch import StepResult
from dspark_factory.planning.graph_keys import LayoutForm, Mode


def read_outputs(buffers: Buffers, batch: StepBatch) -> StepResult:
    """Committed tokens of the batch's real requests; the outputs have been copied and awaited."""
    key, count = batch.key, len(batch.slots)
    logits = buffers.take("logits", key.rows) if "logits" in buffers else None
    flat = buffers.host("target_tokens")
    if key.mode is not Mode.TARGET_VERIFY:
        tokens = [[token] for token in flat[:count].tolist()]
        return StepResult(key=key, tokens=tokens, logits=logits)
    rows = flat[: key.rows].tolist()
    accept_lens = buffers.host("accept_lens")[:count].tolist()
    if key.form is LayoutForm.RAGGED:
        starts = list(accumulate(batch.row_lens, initial=0))
    else:
        starts = range(0, count * key.width, key.width)
    tokens = [rows[start : start + length] for start, length in zip(starts, accept_lens, strict=False)]
    return StepResult(key=key, tokens=tokens, logits=logits)
