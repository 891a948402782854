"""The mask's buffer, for a reader that verifies more than a chain."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, Update, extents
from dspark_factory.planning.dims import Dims


class VerifyMask:
    """``verify_mask [requests, queries, draft tokens]`` bool: which row of a request sees which.

    Chain verification is causal and reads no mask, so this is planned only on demand. Its size has no context
    factor: what lies before the draft rows is visible to all of them.
    """

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On with speculation; the planner asks only when somebody reads the mask."""
        return Gate.on("a selected plugin reads it") if dims.speculation else Gate.off("speculation is off")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest captured batch and draft-token count."""
        return [
            BufferRequest(
                name="verify_mask",
                shape=extents(
                    requests=dims.max_batch_requests, queries=dims.max_width, draft_tokens=dims.max_width
                ),
                dtype=DType.BOOL,
                update=Update.HOST_STAGE,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Start as a chain; the reader stages its own trees."""
        mirror = buffers.host("verify_mask")
        mirror[:] = [[column <= row for column in range(dims.max_width)] for row in range(dims.max_width)]
