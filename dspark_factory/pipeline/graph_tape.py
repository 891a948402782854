"""Turning recorded operators into one straight-line Python function: the tape that an eager graph replays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from keyword import iskeyword
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.graph_bindings import fastest_call
from dspark_factory.pipeline.recorder import RecordedOp, describe_op, tensors_in


def compile_tape(ops: Sequence[RecordedOp]) -> Callable[[], None]:
    """A function without arguments that runs ``ops`` again on the same constants.

    A tensor that some operator produced lives in a numbered register and is freed after its last use; any
    other tensor is a constant, held by reference, so its address is frozen as in a device graph. Views of
    constants have frozen addresses too, so they are made once, here, and not at replay. ``ops`` must still
    hold all tensors: registers are told apart by object identity.
    """
    tape = _Tape()
    reshapes_in_place = any(torch.Tag.inplace_view in op.func.tags for op in ops)
    for op in ops:
        if reshapes_in_place or not tape.settle(op):
            tape.append(op)
    return tape.compile()


def _memory(tensors: Iterable[Tensor]) -> set[int]:
    """Addresses of the memory behind tensors; all of them are alive, so an address stands for one memory."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors} - {0}


class _Line(NamedTuple):
    source: str
    reads: frozenset[str]
    defines: frozenset[str]


class _Tape:
    """Names for tensors, and one source line for each operator that has to run again."""

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._registers: dict[int, str] = {}
        self._register_count = 0
        self._produced_memory: set[int] = set()
        self._names: dict[int, str] = {}
        self._namespace: dict[str, Any] = {}

    def settle(self, op: RecordedOp) -> bool:
        """Whether ``op`` needs no replay, because it only names memory whose address is known now."""
        inputs = list(tensors_in((op.args, op.kwargs)))
        if op.func is torch.ops.aten.detach.default and id(op.args[0]) in self._registers:
            self._registers[id(op.outputs)] = self._registers[id(op.args[0])]
            return True
        if not op.func.is_view or any(id(tensor) in self._registers for tensor in inputs):
            return False
        return _memory(tensors_in(op.outputs)) <= _memory(inputs)

    def append(self, op: RecordedOp) -> None:
        """Add the line that runs ``op`` again."""
        inputs = list(tensors_in((op.args, op.kwargs)))
        self._check_constants(op, inputs)
        reads = frozenset(self._registers[id(tensor)] for tensor in inputs if id(tensor) in self._registers)
        call = self._call(op)
        constant_memory = _memory(inputs) - self._produced_memory
        outputs = [tensor for tensor in tensors_in(op.outputs) if not any(tensor is t for t in inputs)]
        for tensor in outputs:
            self._registers[id(tensor)] = f"r{self._register_count}"
            self._register_count += 1
        self._produced_memory |= _memory(outputs) - constant_memory
        defines = frozenset(self._registers[id(tensor)] for tensor in outputs)
        target = self._pattern(op.outputs, defines) + " = " if defines else ""
        self._lines.append(_Line(target + call, reads, defines))

    def compile(self) -> Callable[[], None]:
        """The replay function; every register is dropped right after the last line that reads it."""
        last_use = {name: i for i, line in enumerate(self._lines) for name in line.reads | line.defines}
        source = ["def replay():"]
        for i, line in enumerate(self._lines):
            dead = sorted(name for name in line.reads | line.defines if last_use[name] == i)
            source.append(f"    {line.source}" + (f"; del {', '.join(dead)}" if dead else ""))
        source.append("    return None")
        exec(compile("\n".join(source), "<eager graph>", "exec"), self._namespace)
        return self._namespace.pop(
            "replay"
        )  # the function keeps the namespace, which must not keep it in turn

    def _check_constants(self, op: RecordedOp, inputs: Sequence[Tensor]) -> None:
        """A register that went unnoticed would be replayed as a stale constant; never let that happen."""
        for tensor in inputs:
            if id(tensor) not in self._registers and _memory([tensor]) & self._produced_memory:
                raise CaptureError(
                    f"cannot capture {describe_op(op.func, op.provider)}: an intermediate result reached it "
                    "through a call that no operator shows; use ordinary tensor operations in between"
                )

    def _call(self, op: RecordedOp) -> str:
        arguments = [self._source(value) for value in op.args]
        for name, value in op.kwargs.items():
            arguments.append(
                f"**{{{name!r}: {self._source(value)}}}"
                if iskeyword(name)
                else f"{name}={self._source(value)}"
            )
        return f"{self._constant(fastest_call(op.func, op.kwargs))}({', '.join(arguments)})"

    def _source(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self._registers.get(id(value)) or self._constant(value)
        if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
            return repr(value)
        if isinstance(value, list | tuple) and any(True for _ in tensors_in(value)):
            return f"[{', '.join(map(self._source, value))}]"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        """Global name of an object; the namespace keeps it alive, so its id stays its own."""
        if id(value) not in self._names:
            self._names[id(value)] = name = f"c{len(self._names)}"
            self._namespace[name] = value
        return self._names[id(value)]

    def _pattern(self, outputs: Any, defines: frozenset[str]) -> str:
        """Assignment target with the nesting of ``outputs``; what needs no register goes to ``_``."""
        if isinstance(outputs, list | tuple):
            return f"[{', '.join(self._pattern(output, defines) for output in outputs)}]"
        name = self._registers.get(id(outputs), "_") if isinstance(outputs, Tensor) else "_"
        return name if name in defines else "_"
