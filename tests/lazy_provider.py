"""The seed's mistake as a provider: a buffer that is born on first use."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dspark_factory.api import BufferPlugin, BufferRequest, Buffers, BufferSpec, Gate, StepState
from dspark_factory.planning.dims import Dims


class LazyVerify:
    """Asks for nothing, then makes its buffer inside the step."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        return Gate.on("a deliberately lazy provider")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        return ()

    def bind(self, buffers: Buffers, dims: Dims) -> BoundLazyVerify:
        return BoundLazyVerify(dims)


class BoundLazyVerify:
    def __init__(self, dims: Dims) -> None:
        self._max_requests, self._count = dims.max_requests, dims.max_width
        self.lens: torch.Tensor | None = None

    def compute(self, step: StepState) -> None:
        if self.lens is None:
            self.lens = torch.full((self._max_requests,), self._count, dtype=torch.int32)
        self.lens[: step.key.requests].fill_(step.key.width)


LAZY = BufferPlugin(name="lazy_verify", spec=BufferSpec, provider="tests.lazy_provider:LazyVerify")
