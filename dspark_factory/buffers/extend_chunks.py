"""Chunk lengths of extend (prefill)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, StepBatch, Update, extents
from dspark_factory.buffers.staging import write_padded
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode


class ExtendChunks:
    """``chunk_lens`` and ``chunk_start_loc``, ``[requests]`` int32."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """Always on: every prompt is extended."""
        return Gate.on()

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the most requests of an extend step."""
        shape = extents(requests=dims.extend_requests)
        return [
            BufferRequest(name=name, shape=shape, dtype=DType.INT32, update=Update.HOST_STAGE, baked=False)
            for name in ("chunk_lens", "chunk_start_loc")
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundExtendChunks:
        """Keep the host mirrors."""
        return BoundExtendChunks(buffers)


class BoundExtendChunks:
    """Stages chunk lengths and their exclusive running sum."""

    def __init__(self, buffers: Buffers) -> None:
        self._lens = buffers.host("chunk_lens")
        self._starts = buffers.host("chunk_start_loc")

    def stage(self, batch: StepBatch) -> None:
        """Write both for an extend step; other modes do not read them."""
        if batch.key.mode is not Mode.EXTEND:
            return
        starts = list(accumulate(batch.row_lens, initial=0))
        write_padded(self._lens, batch.row_lens, batch.key.requests, 0)
        write_padded(self._starts, starts[:-1], batch.key.requests, starts[-1])
