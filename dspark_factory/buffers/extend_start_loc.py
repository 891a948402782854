"""First row of each request in ragged verify: the second of the seed's two buffers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, StepBatch, Update, extents
from dspark_factory.buffers.staging import write_padded
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import LayoutForm, Mode


class ExtendStartLoc:
    """``extend_start_loc [requests]`` int32: exclusive running sum of ``extend_seq_lens``.

    Uniform verify knows its rows by multiplication, so the buffer exists only where ragged verify can happen.
    """

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On with speculation and a ragged verify layout."""
        if not dims.speculation:
            return Gate.off("speculation is off")
        if not dims.ragged:
            return Gate.off("speculative.verify_layout=uniform: rows lie num_draft_tokens apart")
        return Gate.on("speculative.verify_layout=ragged")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest captured batch."""
        return [
            BufferRequest(
                name="extend_start_loc",
                shape=extents(requests=dims.max_batch_requests),
                dtype=DType.INT32,
                update=Update.HOST_STAGE,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundExtendStartLoc:
        """Keep the host mirror."""
        return BoundExtendStartLoc(buffers)


class BoundExtendStartLoc:
    """Stages start rows; padding requests begin where the last real row ends."""

    def __init__(self, buffers: Buffers) -> None:
        self._starts = buffers.host("extend_start_loc")

    def stage(self, batch: StepBatch) -> None:
        """Write the start rows of a ragged verify step."""
        if batch.key.mode is Mode.TARGET_VERIFY and batch.key.form is LayoutForm.RAGGED:
            starts = list(accumulate(batch.row_lens, initial=0))
            write_padded(self._starts, starts[:-1], batch.key.requests, starts[-1])
