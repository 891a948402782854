"""What all graphs of a pipeline share on a device: the capture stream and the memory pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dspark_factory.pipeline.graphs import Graph, create_graph


class CaptureDevice:
    """Creates graphs that share one pool, and warms steps up on the stream that captures them."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

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
