"""Outputs of a step that the host reads."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, Update, extents
from dspark_factory.planning.dims import Dims


class TargetTokens:
    """``target_tokens [rows]`` int32: the target's choice after each row."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """Always on."""
        return Gate.on()

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest step; an extend step chooses one token per request."""
        rows = max(dims.max_batch_rows, dims.extend_requests)
        return [
            BufferRequest(
                name="target_tokens", shape=extents(rows=rows), dtype=DType.INT32, update=Update.HOST_READ
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to do per step: the model's step writes it."""


class AcceptLens:
    """``accept_lens [requests]`` int32: committed tokens of each request, bonus included."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On with speculation."""
        return Gate.on("target verify") if dims.speculation else Gate.off("speculation is off")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest captured batch."""
        return [
            BufferRequest(
                name="accept_lens",
                shape=extents(requests=dims.max_batch_requests),
                dtype=DType.INT32,
                update=Update.HOST_READ,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to do per step: acceptance writes it."""
