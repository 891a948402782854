"""Inputs of every step: which requests, how long they are, which tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, StepBatch, Update, extents
from dspark_factory.buffers.staging import write_padded, write_rows
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import LayoutForm


class StepInputs:
    """``request_slots`` and ``prefix_lens`` ``[requests]``, ``token_ids [rows]``, int32."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """Always on."""
        return Gate.on()

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest step, extend included."""
        per_request = extents(requests=dims.max_step_requests)
        return [
            BufferRequest(
                name="request_slots",
                shape=per_request,
                dtype=DType.INT32,
                fill=dims.scratch_slot,
                update=Update.HOST_STAGE,
            ),
            BufferRequest(name="prefix_lens", shape=per_request, dtype=DType.INT32, update=Update.HOST_STAGE),
            BufferRequest(
                name="token_ids",
                shape=extents(rows=dims.max_rows),
                dtype=DType.INT32,
                update=Update.HOST_STAGE,
            ),
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundStepInputs:
        """Keep the host mirrors."""
        return BoundStepInputs(buffers, dims)


class BoundStepInputs:
    """Stages requests and tokens; padding requests use the scratch slot with an empty prefix."""

    def __init__(self, buffers: Buffers, dims: Dims) -> None:
        self._slots = buffers.host("request_slots")
        self._prefix_lens = buffers.host("prefix_lens")
        self._token_ids = buffers.host("token_ids")
        self._scratch_slot = dims.scratch_slot

    def stage(self, batch: StepBatch) -> None:
        """Write slots, prefixes and tokens; uniform rows lie ``width`` apart, ragged rows back to back."""
        key = batch.key
        write_padded(self._slots, batch.slots, key.requests, self._scratch_slot)
        write_padded(self._prefix_lens, batch.prefix_lens, key.requests, 0)
        if key.form is LayoutForm.RAGGED:
            write_padded(self._token_ids, list(chain.from_iterable(batch.token_ids)), key.rows, 0)
            return
        grid = self._token_ids[: key.rows].reshape(key.requests, key.width)
        write_rows(grid, batch.token_ids, batch.row_lens, 0)
