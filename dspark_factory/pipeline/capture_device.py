"""What all graphs of a pipeline share on a device: the capture stream and the memory pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from dspark_factory.pipeline.graphs import Graph, create_graph


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One per device and process: libraries keep a workspace for every stream that they have seen."""
    return torch.cuda.Stream(device)


class CaptureDevice:
    """Creates graphs that share one pool, and warms steps up on the stream that captures them."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._stream = _capture_stream(device) if device.type == "cuda" else None
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def renew_pool(self) -> None:
        """Start another pool; a failed capture leaves the old one unusable."""
        if self._pool is not None:
            self._pool = torch.cuda.graph_pool_handle()

    def pool_nbytes(self) -> int:
        """Memory that the allocator holds for graphs of this pool; it stays theirs between replays."""
        if self._pool is None:
            return 0
        segments = torch.cuda.memory_snapshot()
        return sum(item["total_size"] for item in segments if item["segment_pool_id"] == self._pool)

    def create(self) -> Graph:
        """An empty graph."""
        return create_graph(self._kind, pool=self._pool, stream=self._stream)

    @contextmanager
    def warm(self) -> Iterator[None]:
        """Run the block on the capture stream, ordered after and before the caller's."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.current_stream().wait_stream(self._stream)
