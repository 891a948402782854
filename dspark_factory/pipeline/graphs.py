"""Capturing a step once and replaying it: on CUDA a device graph, on a CPU a tape under the same rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import torch
from torch._ops import OpOverload

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.capture_rules import (
    Breach,
    function_breach,
    operator_breach,
    tolerated_operators,
)
from dspark_factory.pipeline.graph_tape import compile_tape
from dspark_factory.pipeline.recorder import (
    FunctionWatch,
    OpRecorder,
    RecordedOp,
    caller_place,
    current_provider,
    describe_op,
    provider_of,
)

Step = Callable[[], None]


class Graph(Protocol):
    """A step captured once: addresses and Python values are frozen, and no Python of the step runs again."""

    @property
    def nbytes(self) -> int:
        """Device memory that the graph holds between replays besides its pool, as far as it is known."""
        ...

    def capture(self, step: Step) -> None:
        """Capture ``step``; ``CaptureError`` leaves the graph empty and ready for another capture."""
        ...

    def replay(self) -> None:
        """Run the captured work again on whatever the same addresses hold now."""
        ...

    def reset(self) -> None:
        """Let go of the captured work and what it holds."""
        ...


def create_graph(
    device_kind: str, *, pool: Any | None = None, stream: torch.cuda.Stream | None = None
) -> Graph:
    """An empty graph for ``"cpu"`` or ``"cuda"``; pool and capture stream are for CUDA only."""
    if device_kind == "cpu":
        return EagerGraph()
    if device_kind == "cuda":
        return CudaGraph(pool=pool, stream=stream)
    raise CaptureError(f"steps can be captured on 'cpu' and 'cuda', not on {device_kind!r}")


class EagerGraph:
    """A graph for CPUs that obeys the rules of a device graph; unlike there, a capture also runs the step.

    A capture keeps every intermediate result until it is done; a replay frees each after its last use.
    """

    def __init__(self) -> None:
        self._tape: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        """Nothing is held between replays but what the step was given."""
        return 0

    def capture(self, step: Step) -> None:
        """Run ``step`` once and keep its operators; what a device graph refuses is refused at once."""
        self.reset()
        recorder = _CaptureRecorder()
        try:
            with torch.inference_mode(False), torch.no_grad(), recorder.watch, recorder:
                step()
        except CaptureError:
            raise
        except Exception as error:
            raise _step_failed(error) from error
        if recorder.refusal is not None:  # the step caught it, a device would not have gone on
            raise recorder.refusal
        self._tape = compile_tape(recorder.ops)
        recorder.ops.clear()  # a reference cycle may keep the recorder until the next garbage collection

    def replay(self) -> None:
        """Run the recorded operators, below autograd and whatever autocast the caller is in."""
        if self._tape is None:
            raise _nothing_captured()
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            self._tape()

    def reset(self) -> None:
        """Forget the tape and the constants that it holds."""
        self._tape = None


class CudaGraph:
    """``torch.cuda.CUDAGraph`` in a shared pool, captured on a given stream.

    Args:
        pool: handle from ``torch.cuda.graph_pool_handle()``, shared by graphs that never run at once.
        stream: capture stream, the one that the step was warmed on.
    """

    def __init__(self, *, pool: Any | None = None, stream: torch.cuda.Stream | None = None) -> None:
        self._pool = pool
        self._stream = stream
        self._graph: torch.cuda.CUDAGraph | None = None
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """What the driver took for the captured work itself; intermediate results lie in the pool."""
        return self._nbytes

    def capture(self, step: Step) -> None:
        """Capture ``step`` without running it."""
        self.reset()
        graph = torch.cuda.CUDAGraph()
        outside = _nbytes_outside_the_allocator()
        step_errors: list[Exception] = []
        try:
            # The outer context puts the caller's stream back even when the capture cannot begin.
            with torch.cuda.stream(torch.cuda.current_stream()):
                self._record(graph, step, step_errors)
        except BaseException as error:
            _discard(graph, error, self._stream)
            # The allocator still counts the old pool as recording and would refuse it.
            self._pool = None if self._pool is None else torch.cuda.graph_pool_handle()
            if not isinstance(error, Exception):
                raise
            # Ending a broken capture raises once more; the step's own error tells what happened.
            original = step_errors[0] if step_errors else error
            raise _step_failed(original) from original
        self._graph = graph
        self._nbytes = max(0, _nbytes_outside_the_allocator() - outside)

    def _record(self, graph: torch.cuda.CUDAGraph, step: Step, step_errors: list[Exception]) -> None:
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
        ):
            try:
                step()
            except Exception as error:
                step_errors.append(error)
                raise

    def replay(self) -> None:
        """Launch the captured kernels on the current stream."""
        if self._graph is None:
            raise _nothing_captured()
        self._graph.replay()

    def reset(self) -> None:
        """Release the graph; its memory goes back to the pool."""
        if self._graph is not None:
            self._graph.reset()
        self._graph = None
        self._nbytes = 0


def _nbytes_outside_the_allocator() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


class _CaptureRecorder(OpRecorder):
    """Records operators and refuses what a device graph would."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = FunctionWatch(self._admit_function)
        self.refusal: CaptureError | None = None

    def admit(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        breach = operator_breach(func, args, kwargs)
        if breach is not None and func._schema.name not in self.watch.tolerated:
            self._refuse(describe_op(func, current_provider(), caller_place()), breach)

    def record(self, op: RecordedOp) -> None:
        if op.func is not torch.ops.aten._local_scalar_dense.default:  # only a tolerated check gets here
            super().record(op)

    def _admit_function(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> frozenset[str]:
        breach = function_breach(func, args, kwargs)
        if breach is not None:
            name = getattr(func, "__name__", str(func))
            self._refuse(describe_op(name, current_provider(), caller_place()), breach)
        return tolerated_operators(func, args, kwargs)

    def _refuse(self, what: str, breach: Breach) -> NoReturn:
        error = CaptureError(f"cannot capture {what}: it {breach.effect}. Instead: {breach.change}")
        self.refusal = self.refusal or error
        raise error


def _step_failed(error: Exception) -> CaptureError:
    provider = provider_of(error)
    culprit = f" in provider {provider!r}" if provider else ""
    return CaptureError(f"the step failed{culprit} while it was captured: {error}")


def _nothing_captured() -> CaptureError:
    return CaptureError("nothing is captured in this graph, so it cannot replay; call capture(step) first")


def _discard(graph: torch.cuda.CUDAGraph, error: BaseException, stream: torch.cuda.Stream | None) -> None:
    """Reset a half-made graph, and capture an empty one in its place.

    A capture that a host sync broke leaves the default CUDA generator in capture state, where every random number
    raises; only a capture that ends well takes it out again.
    """
    try:
        graph.reset()
        with torch.cuda.stream(torch.cuda.current_stream()):
            marker = torch.zeros(1, device="cuda")
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                marker.add_(1)
    except RuntimeError as later:
        error.add_note(f"clearing away the half-made graph failed as well: {later}")
