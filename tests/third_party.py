"""Plugins as a third party would write them; the core knows none of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dspark_factory.api import (
    BackendPlugin,
    BackendSpec,
    BufferPlugin,
    BufferRequest,
    Buffers,
    BufferSpec,
    DType,
    Gate,
    Role,
    extents,
)
from dspark_factory.planning.dims import Dims


@dataclass(kw_only=True)
class HistorySpec(BufferSpec):
    """Options that only the provider below understands."""

    depth: int = 64
    quantiles: list[float] = field(default_factory=lambda: [0.5])
    role: Role = Role.TARGET

    def __post_init__(self) -> None:
        if isinstance(self.depth, int) and self.depth > 1000:
            raise ValueError(f"buffers.history.depth={self.depth}: at most 1000 steps are kept")


class History:
    """Accept lengths of the last steps."""

    def gate(self, spec: HistorySpec, dims: Dims) -> Gate:
        return Gate.on("asked for") if dims.speculation else Gate.off("speculation is off")

    def requests(self, spec: HistorySpec, dims: Dims) -> Sequence[BufferRequest]:
        return [
            BufferRequest(
                name=f"history_{spec.role.value}",
                shape=extents(slots=dims.request_slots, steps=spec.depth),
                dtype=DType.INT32,
                role=spec.role,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing per step."""


class Wanting:
    """Wants a buffer, whatever the configuration; counts how often it is asked."""

    times_asked = 0

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        return Gate.on()

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        type(self).times_asked += 1
        return [BufferRequest(name="wanted", shape=extents(requests=dims.max_requests), dtype=DType.INT64)]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing per step."""


class Quiet:
    """Needs no buffer of its own."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        return Gate.on()

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        return ()

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing per step."""


class ChoosyBackend:
    """Serves no geometry."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        return [f"head_dim={dims.head_dim} is not 7", "it is choosy"]

    def requests(self, spec: BackendSpec, dims: Dims) -> Sequence[BufferRequest]:
        return ()

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to keep."""


@dataclass(kw_only=True)
class ChoosySpec(BackendSpec):
    """Options of the choosy backend."""

    kind: str = "choosy"
    taste: int = 1


HISTORY = BufferPlugin(name="history", spec=HistorySpec, provider="tests.third_party:History")
MASK_READER = BufferPlugin(
    name="mask_reader", spec=BufferSpec, provider="tests.third_party:Quiet", reads=("verify_mask",)
)
CHOOSY = BackendPlugin(name="choosy", spec=ChoosySpec, backend="tests.third_party:ChoosyBackend")


def wanting(name: str, *requires: str, provider: str = "Wanting") -> BufferPlugin:
    """A plugin that depends on others."""
    return BufferPlugin(
        name=name, spec=BufferSpec, provider=f"tests.third_party:{provider}", requires=requires
    )
