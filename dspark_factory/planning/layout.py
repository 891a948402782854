"""Where every buffer lies in the one device block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dspark_factory.api import BufferRequest, DType, Extent, Role, Update

ALIGNMENT_NBYTES = 256
"""Start of every buffer in its block; what tensor-core loads and pinned copies like."""

_COPIED_FIRST = (Update.HOST_STAGE, Update.HOST_READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBuffer:
    """One buffer: what it is, who asked for it, and where it lies in the device block."""

    name: str
    provider: str
    role: Role
    shape: tuple[Extent, ...]
    dtype: DType
    nbytes: int
    offset: int
    fill: float | int | bool | None
    baked: bool
    update: Update

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape without units."""
        return tuple(extent.size for extent in self.shape)


class Layout(NamedTuple):
    """Buffers in order, the size of their block, and the sizes of its staged part and the part that the host reads."""

    buffers: tuple[PlannedBuffer, ...]
    block_nbytes: int
    staged_nbytes: int
    read_nbytes: int


def lay_out(asked: Sequence[tuple[str, BufferRequest]]) -> Layout:
    """Offsets in the block: staged buffers first, then those that the host reads, so that one copy covers each.

    Args:
        asked: who asks, and what for.
    """
    groups = [[item for item in asked if item[1].update is update] for update in _COPIED_FIRST]
    groups.append([item for item in asked if item[1].update not in _COPIED_FIRST])
    buffers: list[PlannedBuffer] = []
    ends = [0]
    for group in groups:
        end = ends[-1]
        for provider, request in group:
            buffers.append(_placed(provider, request, end))
            end = -(-(end + request.nbytes) // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        ends.append(end)
    return Layout(tuple(buffers), ends[3], ends[1], ends[2] - ends[1])


def _placed(provider: str, request: BufferRequest, offset: int) -> PlannedBuffer:
    return PlannedBuffer(
        name=request.name,
        provider=provider,
        role=request.role,
        shape=request.shape,
        dtype=request.dtype,
        nbytes=request.nbytes,
        offset=offset,
        fill=request.fill,
        baked=request.baked,
        update=request.update,
    )
