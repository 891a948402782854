"""Buffers as they are asked for: types, roles, updates, shapes with units, gates and options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import NamedTuple


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
    HOST_READ = "host_read"
    """Written by the captured region, read by the host; all such buffers come back in one copy after a launch."""


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
