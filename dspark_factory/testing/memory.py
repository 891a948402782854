"""Looking at memory: what lies outside the arena, what a step uses, what was written where nothing may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dspark_factory.memory.arena import Arena
from dspark_factory.pipeline.recorder import OpRecorder, RecordedOp, tensors_in
from dspark_factory.planning.layout import PlannedBuffer
from dspark_factory.testing.registration import GUARD_PATTERN, GUARD_PREFIX

_DEPTH = 4
"""How deep attributes of attributes are looked into."""


def foreign_tensors(bound: object, arena: Arena) -> list[str]:
    """Attributes of a bound object that hold tensors of other memory than the arena's."""
    block = arena.block.untyped_storage().data_ptr()
    return [
        f"{path} ({tensor.nbytes} bytes)"
        for path, tensor in _tensors_held(bound, "", _DEPTH)
        if tensor.nbytes and tensor.untyped_storage().data_ptr() != block
    ]


def _tensors_held(item: object, path: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(item, Tensor):
        yield path, item
    elif depth and isinstance(item, (list, tuple)):
        for index, value in enumerate(item):
            yield from _tensors_held(value, f"{path}[{index}]", depth - 1)
    elif depth and isinstance(item, dict):
        for name, value in item.items():
            yield from _tensors_held(value, f"{path}[{name!r}]", depth - 1)
    elif depth:
        for name, value in _attributes(item).items():
            yield from _tensors_held(value, f"{path}.{name}".lstrip("."), depth - 1)


def _attributes(item: object) -> dict[str, Any]:
    """What an object of a plugin holds; other libraries' objects are not looked into."""
    if type(item).__module__.partition(".")[0] in ("builtins", "numpy", "torch"):
        return {}
    slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(item, name) for name in slots if hasattr(item, name)} | getattr(
        item, "__dict__", {}
    )


class UseRecorder(OpRecorder):
    """Names of the buffers that operators touch; the one copy of all staged inputs does not count.

    Attributes:
        names: seen so far.
    """

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.names: set[str] = set()
        self._start = arena.block.data_ptr()
        self._storage = arena.block.untyped_storage().data_ptr()
        self._whole = {arena.plan.block_nbytes, arena.plan.staged_nbytes}
        self._buffers = arena.plan.buffers

    def record(self, op: RecordedOp) -> None:
        """Note the buffers behind the operator's arguments."""
        for tensor in tensors_in((op.args, op.kwargs)):
            if not tensor.numel() or tensor.untyped_storage().data_ptr() != self._storage:
                continue
            first = tensor.data_ptr() - self._start
            if first == 0 and tensor.dtype is torch.uint8 and tensor.nbytes in self._whole:
                continue
            self.names.update(self._overlapping(first, first + _span_nbytes(tensor)))

    def _overlapping(self, first: int, end: int) -> Iterator[str]:
        for buffer in self._buffers:
            if buffer.offset < end and first < buffer.offset + buffer.nbytes:
                yield buffer.name


def _span_nbytes(tensor: Tensor) -> int:
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


class Fence:
    """Guard zones around a provider's buffers, and the gaps that alignment leaves in the block.

    Gaps of staged memory are zero, because the one copy brings them along; the others get a pattern.
    """

    def __init__(self, arena: Arena) -> None:
        self._block = arena.block
        self._buffers = sorted(arena.plan.buffers, key=lambda buffer: buffer.offset)
        expected = torch.zeros_like(arena.block)
        expected[arena.plan.staged_nbytes :] = GUARD_PATTERN
        watched = torch.ones_like(arena.block, dtype=torch.bool)
        for buffer in self._buffers:
            part = slice(buffer.offset, buffer.offset + buffer.nbytes)
            watched[part] = buffer.name.startswith(GUARD_PREFIX)
            expected[part] = GUARD_PATTERN
        self._places = watched.nonzero().flatten()
        self._expected = expected[self._places]
        self._block[self._places] = self._expected

    def damage(self) -> list[str]:
        """Where bytes changed that belong to nobody, in words; one entry per neighbouring buffer."""
        changed = self._places[self._block[self._places] != self._expected].tolist()
        counts: dict[str, int] = {}
        for place in changed:
            name = self._neighbour(place)
            counts[name] = counts.get(name, 0) + 1
        return [f"{count} bytes {name}" for name, count in counts.items()]

    def _neighbour(self, place: int) -> str:
        before: PlannedBuffer = max(
            (buffer for buffer in self._buffers if buffer.offset <= place), key=lambda buffer: buffer.offset
        )
        for side in ("before", "behind"):
            prefix = f"{GUARD_PREFIX}{side}_"
            if before.name.startswith(prefix):
                return f"{side} buffer {before.name.removeprefix(prefix)!r}"
        return f"behind buffer {before.name!r}"
