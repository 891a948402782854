"""Page table: which page of the compressed pools holds which tokens of a request.

One table serves both compress ratios, because a page is counted in tokens. Changes arrive as a short list of
``(slot, page index, page)`` in the step's one host-to-device copy and are applied inside the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, StepBatch, Update, extents
from dspark_factory.errors import BatchError
from dspark_factory.planning.dims import Dims


class PageTable:
    """``page_table [slots, pages per request]`` and ``page_updates [updates, 3]``, both int32."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On when any layer compresses; sliding-window layers need no pages."""
        return Gate.on("layers compress") if dims.has_compressed_layers else Gate.off("no layer compresses")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """The table, all entries at the scratch page, and its per-step changes."""
        return [
            BufferRequest(
                name="page_table",
                shape=extents(slots=dims.request_slots, pages=dims.pages_per_request),
                dtype=DType.INT32,
                fill=dims.scratch_page,
            ),
            BufferRequest(
                name="page_updates",
                shape=extents(updates=dims.page_updates, fields=3),
                dtype=DType.INT32,
                update=Update.HOST_STAGE,
            ),
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundPageTable:
        """Keep the host mirror of the changes."""
        return BoundPageTable(buffers, dims)


class BoundPageTable:
    """Stages page-table changes; unused entries point the scratch slot at the scratch page."""

    def __init__(self, buffers: Buffers, dims: Dims) -> None:
        self._updates = buffers.host("page_updates")
        self._neutral = (dims.scratch_slot, 0, dims.scratch_page)
        self._used = len(self._updates)

    def stage(self, batch: StepBatch) -> None:
        """Write the step's changes."""
        count = len(batch.page_updates)
        if count > len(self._updates):
            raise BatchError(f"a step changes at most {len(self._updates)} page-table entries, got {count}")
        if count:
            self._updates[:count] = batch.page_updates
        if count < self._used:  # what is behind is neutral already
            self._updates[count : self._used] = self._neutral
        self._used = count
