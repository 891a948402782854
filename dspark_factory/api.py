"""All that a plugin author imports: specs, requests, gates and the provider and backend protocols.

This module is light on purpose: no torch, so that descriptors can be read by ``--help``, tab completion
and ``task=plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from dspark_factory.attention.rows import StepRows
    from dspark_factory.planning.dims import Dims
    from dspark_factory.planning.graph_keys import GraphKey

__all__ = [
    "API_VERSION",
    "AttentionBackend",
    "BackendPlugin",
    "BackendSpec",
    "BufferPlugin",
    "BufferProvider",
    "BufferRequest",
    "BufferSpec",
    "Buffers",
    "ComputesInStep",
    "DType",
    "Extent",
    "Gate",
    "LayerAttention",
    "ObservesOutcome",
    "Reports",
    "Role",
    "StagesInputs",
    "StepBatch",
    "StepOutcome",
    "StepState",
    "Update",
    "extents",
]

API_VERSION = 1
"""Version of this contract; a plugin made for another one is listed as outdated and never loaded."""


class DType(Enum):
    """Element type of a buffer; the value is the name torch knows it by."""

    BOOL = "bool"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _ELEMENT_NBYTES[self.value]


_ELEMENT_NBYTES = {
    "bool": 1, "uint8": 1, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
}  # fmt: skip


class Update(Enum):
    """How a buffer's content changes during steps."""

    CONST = "const"
    """Written once in CONSTRUCT, never again."""
    FILL = "fill"
    """Refilled with one value from the host before a launch."""
    COPY = "copy"
    """Copied into from another device tensor before a launch."""
    IN_GRAPH = "in_graph"
    """Written by the captured region itself."""
    HOST_STAGE = "host_stage"
    """Written on the host; all such buffers reach the device in one copy before a launch."""


class Role(Enum):
    """Which model reads a buffer; a buffer is planned only for the role that reads it."""

    TARGET = "target"
    DRAFT = "draft"


class Extent(NamedTuple):
    """One dimension of a shape: what is counted, and how many."""

    unit: str
    size: int


def extents(**sizes: int) -> tuple[Extent, ...]:
    """Shape with named units: ``extents(requests=64, draft_tokens=6)``."""
    return tuple(Extent(unit, size) for unit, size in sizes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRequest:
    """Declared need for one buffer; the arena allocates it in CONSTRUCT.

    Args:
        name: unique among all buffers, snake_case.
        shape: named extents, see :func:`extents`.
        dtype: element type.
        fill: initial value of every element; ``None`` leaves the memory as it comes.
        baked: whether a captured graph records the address.
        update: who writes the buffer, and when.
        role: the model that reads it.
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: DType
    fill: float | int | bool | None = 0
    baked: bool = True
    update: Update = Update.IN_GRAPH
    role: Role = Role.TARGET

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape without units."""
        return tuple(extent.size for extent in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.sizes) * self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether a feature is on, and why: requested *and* supported."""

    enabled: bool
    reason: str

    @staticmethod
    def on(reason: str = "always needed") -> Gate:
        """The feature is on."""
        return Gate(True, reason)

    @staticmethod
    def off(reason: str) -> Gate:
        """The feature is off; its provider is not asked for requests."""
        return Gate(False, reason)


@dataclass(kw_only=True)
class BufferSpec:
    """Base of the options of a buffer provider. Not frozen: Hydra merges into it."""

    enabled: bool = True
    """The user's wish; the provider's gate still decides."""


@dataclass(kw_only=True)
class BackendSpec:
    """Base of the options of an attention backend."""

    kind: str = "reference"
    """Registered name of the backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """Host-side description of one step, padded to its graph key.

    Every sequence has one entry per real request; padding is the difference to ``key.requests``.

    Attributes:
        key: the graph that will run.
        slots: request slot of each request.
        prefix_lens: tokens already committed before this step's rows.
        row_lens: rows of each request that count; in a uniform layout the others are padding rows.
        token_ids: the tokens of each request's rows, ``row_lens[r]`` of them.
        page_updates: ``(slot, page index, page)`` entries that change in the page table.
        temperatures: softmax temperature of each request; 0 is greedy. Empty when sampling is off.
        uniforms: numbers in [0, 1) of each request: one for the bonus token, then one per draft.
    """

    key: GraphKey
    slots: Sequence[int]
    prefix_lens: Sequence[int]
    row_lens: Sequence[int]
    token_ids: Sequence[Sequence[int]]
    page_updates: Sequence[tuple[int, int, int]] = ()
    temperatures: Sequence[float] = ()
    uniforms: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """What a provider's ``compute`` sees inside the captured region; everything lies on the device.

    Attributes:
        key: the graph being run; constant for a capture.
        rows: row tables of the step.
        target_tokens: ``[rows]`` int32, the target's choice after each row.
        accept_lens: ``[requests]`` int32 committed tokens per request, bonus included; ``None`` outside verify.
    """

    key: GraphKey
    rows: StepRows
    target_tokens: Tensor
    accept_lens: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a provider's ``observe`` sees on the host after a step."""

    batch: StepBatch
    accept_lens: Sequence[int]


class Buffers(Protocol):
    """The arena's views by name. A name whose gate is off raises ``FeatureDisabled``."""

    def __getitem__(self, name: str) -> Tensor:
        """The whole buffer."""
        ...

    def __contains__(self, name: object) -> bool:
        """Whether the buffer exists, that is, whether its gate is on."""
        ...

    def take(self, name: str, size: int) -> Tensor:
        """First ``size`` entries along the first dimension; ``CapacityError`` beyond it."""
        ...

    def host(self, name: str) -> np.ndarray:
        """Host mirror of a ``HOST_STAGE`` buffer, shared with the memory that the one copy reads."""
        ...


@runtime_checkable
class StagesInputs(Protocol):
    """A bound provider that writes host mirrors before each launch, outside the graph."""

    def stage(self, batch: StepBatch) -> None:
        """Write the host mirrors of this provider's ``HOST_STAGE`` buffers, padding included."""
        ...


@runtime_checkable
class ComputesInStep(Protocol):
    """A bound provider with work inside the captured region, after the model and acceptance."""

    def compute(self, step: StepState) -> None:
        """Read and write bound buffers only; no host sync, no allocation that outlives the step."""
        ...


@runtime_checkable
class ObservesOutcome(Protocol):
    """A bound provider that is told what a step committed, on the host."""

    def observe(self, outcome: StepOutcome) -> None:
        """Called once per step after acceptance."""
        ...


@runtime_checkable
class Reports(Protocol):
    """A bound provider that has something to say after a run, for the record and the console."""

    def report(self) -> dict[str, Any]:
        """Values that JSON can hold, by name. Called on the host between steps; it may read the device."""
        ...


SpecT = TypeVar("SpecT", bound=BufferSpec, contravariant=True)


class BufferProvider(Protocol[SpecT]):
    """Declares buffers and binds their views; never allocates."""

    def gate(self, spec: SpecT, dims: Dims) -> Gate:
        """Whether the feature is on. Pure, cheap, without torch."""
        ...

    def requests(self, spec: SpecT, dims: Dims) -> Sequence[BufferRequest]:
        """The buffers needed; asked only when the gate is on. Pure, cheap, without torch."""
        ...

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        """Keep views. The result may implement any of the three hook protocols."""
        ...


class LayerAttention(Protocol):
    """What a backend needs to attend in one layer."""

    @property
    def kind(self) -> str:
        """Layer type: ``sliding_attention``, ``compressed_sparse_attention`` or the heavily compressed."""
        ...

    @property
    def pool(self) -> Tensor:
        """``[pool rows, head_dim]``: ring rows, in-flight rows and compressed rows of this layer."""
        ...

    @property
    def sinks(self) -> Tensor:
        """``[heads]`` fp32 attention-sink logits."""
        ...


class AttentionBackend(Protocol):
    """Attends over index lists; index lists and KV writes are shared by all backends."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        """Why this backend cannot serve these dims; empty means it can. Without torch."""
        ...

    def requests(self, spec: Any, dims: Dims) -> Sequence[BufferRequest]:
        """Workspaces, allocated by the arena like any buffer. Without torch."""
        ...

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Keep views of the workspaces."""
        ...

    def forward(self, q: Tensor, layer: LayerAttention, indices: Tensor) -> Tensor:
        """Attend.

        Args:
            q: ``[rows, heads, head_dim]``, rotated.
            layer: pool and sinks.
            indices: ``[rows, keys]`` int64 pool rows; negative entries are skipped.

        Returns:
            ``[rows, heads, head_dim]`` in the dtype of ``q``; a row without any key is zero.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlugin:
    """Light descriptor of a buffer provider.

    Attributes:
        name: registered name, equal to the YAML file and the entry point.
        spec: dataclass of its options.
        provider: ``"package.module:Class"``, imported when planned.
        config_package: Python package with the plugin's Hydra configs, or ``None``.
        requires: providers that must be on and come earlier.
        reads: names of on-demand buffers that it reads.
        on_demand: planned only when a selected plugin reads it.
    """

    kind: ClassVar[str] = "buffers"
    name: str
    spec: type[BufferSpec]
    provider: str
    config_package: str | None = None
    requires: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    on_demand: bool = False
    api_version: int = API_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPlugin:
    """Light descriptor of an attention backend."""

    kind: ClassVar[str] = "backends"
    name: str
    spec: type[BackendSpec]
    backend: str
    config_package: str | None = None
    reads: tuple[str, ...] = field(default=())
    api_version: int = API_VERSION
