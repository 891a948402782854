"""The ring: its buffers, the write inside the captured step, and the report after a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dspark_accept_history import AcceptHistorySpec
from dspark_factory.api import BufferRequest, Buffers, DType, Gate, StepState, extents
from dspark_factory.planning.dims import Dims

RING, CURSOR = "accept_history", "accept_history_cursor"


class AcceptHistory:
    """``accept_history [slots, depth]`` and ``accept_history_cursor [slots]``, int32."""

    def gate(self, spec: AcceptHistorySpec, dims: Dims) -> Gate:
        """On with speculation."""
        if not dims.speculation:
            return Gate.off("speculation is off, so nothing is accepted")
        return Gate.on(f"keeps the last {spec.depth} accepted lengths of every request slot")

    def requests(self, spec: AcceptHistorySpec, dims: Dims) -> Sequence[BufferRequest]:
        """One ring and one cursor per slot, the scratch slot included."""
        slots = dims.request_slots
        return [
            BufferRequest(name=RING, shape=extents(slots=slots, depth=spec.depth), dtype=DType.INT32),
            BufferRequest(name=CURSOR, shape=extents(slots=slots), dtype=DType.INT32),
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundAcceptHistory:
        """Keep both views."""
        return BoundAcceptHistory(buffers, dims)


class BoundAcceptHistory:
    """Writes the ring of every request in a verify step; reads it for the report only."""

    def __init__(self, buffers: Buffers, dims: Dims) -> None:
        self._ring, self._cursor = buffers[RING], buffers[CURSOR]
        self._depth = self._ring.shape[1]
        self._max_requests, self._max_width = dims.max_requests, dims.max_width

    def compute(self, step: StepState) -> None:
        """Append the accepted length of each request; padding requests write to the scratch slot.

        Several padding requests write to that one place, and nothing reads it. Real slots are all different.
        """
        if step.accept_lens is None:
            return
        slots = step.rows.request_slots
        cursor = self._cursor[slots]
        self._ring.index_put_((slots, (cursor % self._depth).long()), step.accept_lens)
        self._cursor.index_put_((slots,), cursor + 1)

    def report(self) -> dict[str, Any]:
        """Steps seen, and mean and histogram of the lengths that the rings still hold."""
        cursors = self._cursor[: self._max_requests].tolist()
        rings = self._ring[: self._max_requests].tolist()
        kept = [
            length
            for ring, steps in zip(rings, cursors, strict=True)
            for length in ring[: min(steps, self._depth)]
        ]
        return {
            "verify_steps": sum(cursors),
            "mean_accept_length": sum(kept) / len(kept) if kept else None,
            "histogram": [kept.count(length) for length in range(self._max_width + 1)] if kept else [],
            "depth": self._depth,
        }
