"""Rows of each request in target verify: the first of the two buffers whose late birth breaks captures."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, StepBatch, Update, extents
from dspark_factory.buffers.staging import write_padded
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode


class ExtendSeqLens:
    """``extend_seq_lens [requests]`` int32: verify rows that count, at most ``num_draft_tokens`` each.

    Uniform verify reads it too: a request near its context limit, or with fewer drafts than the others, has
    fewer rows than its share of the layout, and the rest are padding rows.
    """

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On with speculation."""
        if not dims.speculation:
            return Gate.off("speculation is off")
        return Gate.on(f"target verify with up to {dims.max_width} rows per request")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest captured batch; filled with the verify width."""
        return [
            BufferRequest(
                name="extend_seq_lens",
                shape=extents(requests=dims.max_batch_requests),
                dtype=DType.INT32,
                fill=dims.num_draft_tokens or dims.max_width,
                update=Update.HOST_STAGE,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundExtendSeqLens:
        """Keep the host mirror."""
        return BoundExtendSeqLens(buffers)


class BoundExtendSeqLens:
    """Stages verify lengths; padding requests have none, whatever an earlier step left."""

    def __init__(self, buffers: Buffers) -> None:
        self._lens = buffers.host("extend_seq_lens")

    def stage(self, batch: StepBatch) -> None:
        """Write the lengths of a verify step."""
        if batch.key.mode is Mode.TARGET_VERIFY:
            write_padded(self._lens, batch.row_lens, batch.key.requests, 0)
