"""One watched run of a step: what a capture would break on, and a fingerprint to compare runs by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from dspark_factory.pipeline.capture_rules import (
    Breach,
    FindingKind,
    function_breach,
    operator_breach,
    tolerated_operators,
)
from dspark_factory.pipeline.recorder import (
    FunctionWatch,
    OpRecorder,
    RecordedOp,
    caller_place,
    current_provider,
    provider_of,
    raising_place,
    tensors_in,
)

_INPLACE_ON_INFERENCE = "Inplace update to inference tensor outside InferenceMode"
_LIFT_FRESH = torch.ops.aten.lift_fresh.default
_NOWHERE = "unknown place"
_PLAIN_VALUES = (
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
_INFERENCE_STORY = (
    "a buffer first made inside inference mode; capture would fail with torch's "
    f"'{_INPLACE_ON_INFERENCE} is not allowed'"
)
_DECLARE = "Declare it in requests() so that CONSTRUCT allocates it, and keep the view from bind()"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a capture of the step would break on or freeze.

    Attributes:
        kind: what it is.
        provider: the provider that was running, or ``None``.
        where: ``file.py:line``, or the name of a watched tensor.
        message: what a capture would do, and what to change.
    """

    kind: FindingKind
    provider: str | None
    where: str
    message: str

    def __str__(self) -> str:
        culprit = f" in provider {self.provider!r}" if self.provider else ""
        return f"{self.kind}{culprit} at {self.where}: {self.message}"


class Maker(NamedTuple):
    """Who made a piece of memory during a run."""

    provider: str | None
    where: str


class OpFingerprint(NamedTuple):
    """What a capture freezes of one operator, without holding any tensor.

    Attributes:
        func: the operator.
        provider: the provider that was running, or ``None``.
        where: its place.
        values: its arguments that are no tensors.
        statics: address of the memory of each tensor from outside the run.
        views: offset, shape and strides of each of those tensors.
        input_shapes: shapes of tensors that earlier operators of the run made.
        output_shapes: shapes of its results.
    """

    func: OpOverload
    provider: str | None
    where: str
    values: tuple[str, ...]
    statics: tuple[int, ...]
    views: tuple[object, ...]
    input_shapes: tuple[object, ...]
    output_shapes: tuple[object, ...]


def memory_addresses(tensors: Iterable[Tensor]) -> frozenset[int]:
    """Addresses of the memory behind ``tensors``; views of the same memory share one."""
    return frozenset(map(_address, tensors)) - {0}


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class WatchedRun(OpRecorder):
    """Collects findings and fingerprints of one run; holds none of the run's memory.

    Args:
        known: addresses of declared buffers and weights.
        earlier: the run before, or ``None``.
    """

    def __init__(self, known: frozenset[int], earlier: WatchedRun | None) -> None:
        super().__init__(places=True)
        self.findings: list[Finding] = []
        self.fingerprints: list[OpFingerprint] = []
        self.watch = FunctionWatch(self._see_function)
        self.made: dict[int, Maker] = {}
        self._known = known
        self._made_before = earlier.made if earlier is not None else {}
        self._reported: set[int] = set()
        self._views_of_known: dict[int, Tensor] = {}

    def execute(self, step: Callable[[], None]) -> bool:
        """Run ``step`` in the mode of a capture; False if an inference tensor ended it, a finding."""
        try:
            with torch.inference_mode(False), torch.no_grad(), self.watch, self:
                step()
        except RuntimeError as error:
            if _INPLACE_ON_INFERENCE not in str(error):
                raise
            self._add(
                "late_allocation",
                provider_of(error),
                raising_place(error),
                f"the step writes {_INFERENCE_STORY}. {_DECLARE}",
            )
            return False
        finally:
            self._views_of_known.clear()  # a reference cycle may keep this run until the next garbage collection
        return True

    def record(self, op: RecordedOp) -> None:
        """Check one operator that just ran, and note what to compare it by."""
        where = op.where or _NOWHERE
        breach = operator_breach(op.func, op.args, op.kwargs)
        if breach is not None and op.func._schema.name not in self.watch.tolerated:
            self._add_breach(str(op.func), breach, where)
        # What lift_fresh is given was made from host values right here, out of sight.
        inputs = [] if op.func is _LIFT_FRESH else list(tensors_in((op.args, op.kwargs)))
        outputs = list(tensors_in(op.outputs))
        self._check_memory(op, inputs, where)
        self.fingerprints.append(self._fingerprint(op, inputs, outputs, where))
        self._note_outputs(op, inputs, outputs)

    def _see_function(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> frozenset[str]:
        breach = function_breach(func, args, kwargs)
        if breach is not None:
            self._add_breach(getattr(func, "__name__", str(func)), breach, caller_place())
        return tolerated_operators(func, args, kwargs)

    def _check_memory(self, op: RecordedOp, inputs: Sequence[Tensor], where: str) -> None:
        for tensor in inputs:
            address = _address(tensor)
            if address == 0 or address in self._known or address in self.made or address in self._reported:
                continue
            self._reported.add(address)
            maker = self._made_before.get(address)
            message = f"{op.func} uses {_origin(tensor, maker)}. {_DECLARE}"
            self._add("late_allocation", op.provider, where, message)
            if maker is not None and maker.provider is not None and maker.provider == op.provider:
                self._add("rebound_buffer", op.provider, where, message)

    def _fingerprint(
        self, op: RecordedOp, inputs: Sequence[Tensor], outputs: Sequence[Tensor], where: str
    ) -> OpFingerprint:
        from_run = [_address(t) in self.made or id(t) in self._views_of_known for t in inputs]
        static = [tensor for tensor, made in zip(inputs, from_run, strict=True) if not made]
        return OpFingerprint(
            func=op.func,
            provider=op.provider,
            where=where,
            values=self._values(op),
            statics=tuple(map(_address, static)),
            views=tuple((t.storage_offset(), tuple(t.shape), t.stride()) for t in static),
            input_shapes=tuple(tuple(t.shape) for t, made in zip(inputs, from_run, strict=True) if made),
            output_shapes=tuple(tuple(t.shape) for t in outputs),
        )

    def _values(self, op: RecordedOp) -> tuple[str, ...]:
        if op.func is _LIFT_FRESH and self.watch.tolerated:
            return (repr(op.args[0].item()),)  # the number of ``tensor[index] = number``
        return tuple(_values_in((op.args, op.kwargs)))

    def _note_outputs(self, op: RecordedOp, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        aliased = set(map(_address, inputs))
        for tensor in outputs:
            address = _address(tensor)
            if address in self._known:
                if not any(tensor is known for known in inputs):
                    self._views_of_known[id(tensor)] = tensor
            elif address not in aliased:
                self.made[address] = Maker(op.provider, op.where or _NOWHERE)

    def _add_breach(self, call: str, breach: Breach, where: str) -> None:
        for kind in breach.kinds:
            self._add(kind, current_provider(), where, f"{call} {breach.effect}. Instead: {breach.change}")

    def _add(self, kind: FindingKind, provider: str | None, where: str, message: str) -> None:
        self.findings.append(Finding(kind, provider, where, message))


def _origin(tensor: Tensor, maker: Maker | None) -> str:
    """What a tensor is that the step should not have, and what a capture would do with it."""
    if tensor.is_inference():
        return _INFERENCE_STORY
    if maker is not None:
        return (
            f"a tensor that an earlier run made at {maker.where}; it outlives its step, and a graph would "
            "keep an address that it does not own"
        )
    return (
        "a tensor that is neither a declared buffer nor a weight and was not made in this step, such as a "
        "buffer made on first use; a graph would keep its address"
    )


def _values_in(arguments: Any) -> Iterator[str]:
    """Numbers, dtypes and the like as text, which also compares NaN; other objects by their type."""
    for leaf in tree_leaves(arguments):
        if not isinstance(leaf, Tensor):
            yield repr(leaf) if isinstance(leaf, _PLAIN_VALUES) else type(leaf).__name__
