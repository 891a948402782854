"""Watching a step: every operator it runs, every host read, and the provider that was running."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_PROVIDER: ContextVar[str | None] = ContextVar("dspark_provider", default=None)
_TORCH_FOLDER = str(Path(torch.__file__).parent)
_STDLIB_FOLDER = sysconfig.get_path("stdlib")
_WATCHING_FILES = frozenset(
    str(Path(__file__).with_name(name)) for name in ("recorder.py", "graphs.py", "lint.py", "lint_run.py")
)
_PROVIDER_MARK = "dspark_provider"


@contextmanager
def provider_scope(name: str) -> Iterator[None]:
    """Everything run inside belongs to provider ``name``; an error that leaves it is marked with the name."""
    token = _PROVIDER.set(name)
    try:
        yield
    except BaseException as error:
        blame(error, name)
        raise
    finally:
        _PROVIDER.reset(token)


def blame(error: BaseException, name: str) -> None:
    """Mark an error with the provider that it left, unless an inner one is marked already."""
    if _PROVIDER_MARK not in vars(error):
        vars(error)[_PROVIDER_MARK] = name
        error.add_note(f"raised while provider {name!r} was running")


def current_provider() -> str | None:
    """Name of the provider whose scope is innermost now, or ``None``."""
    return _PROVIDER.get()


def provider_of(error: BaseException) -> str | None:
    """Name of the innermost provider that ``error`` left, or ``None`` when it left none."""
    return vars(error).get(_PROVIDER_MARK)


def caller_place() -> str:
    """``file.py:line`` of the innermost Python frame outside torch and the code that watches."""
    frame = sys._getframe(1)
    while frame is not None:
        place = _short_path(frame.f_code.co_filename)
        if place is not None:
            return f"{place}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


def raising_place(error: BaseException) -> str:
    """``file.py:line`` of the innermost Python frame outside torch that ``error`` passed."""
    found, trace = "unknown place", error.__traceback__
    while trace is not None:
        place = _short_path(trace.tb_frame.f_code.co_filename)
        if place is not None:
            found = f"{place}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


@cache
def _short_path(filename: str) -> str | None:
    """Path from the import root on, or ``None`` for frames that are never the place to change."""
    if (
        filename in _WATCHING_FILES
        or filename == "<string>"
        or filename.startswith((_TORCH_FOLDER, "<frozen"))
    ):
        return None
    if filename.startswith(_STDLIB_FOLDER) and "site-packages" not in filename:
        return None
    roots = sorted((root for root in sys.path if root and filename.startswith(root + "/")), key=len)
    return filename[len(roots[-1]) + 1 :] if roots else Path(filename).name


def describe_op(func: OpOverload | str, provider: str | None, where: str | None = None) -> str:
    """``aten.nonzero.default (provider 'x', file.py:3)``, as far as it is known."""
    known = [f"provider {provider!r}" if provider else "", where or ""]
    details = ", ".join(filter(None, known))
    return f"{func} ({details})" if details else str(func)


@dataclass(frozen=True, slots=True)
class RecordedOp:
    """One operator call as it was run, tensors included.

    Attributes:
        func: the operator overload.
        args: positional arguments.
        kwargs: keyword arguments.
        outputs: what it returned; in-place operators return their argument itself.
        where: ``file.py:line``, or ``None`` when places are not recorded.
        provider: the provider that was running, or ``None``.
    """

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any
    where: str | None
    provider: str | None


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested arguments or outputs, in order."""
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


class OpRecorder(TorchDispatchMode):
    """Hands every operator to ``admit`` before it runs and to ``record`` afterwards.

    Implicitly composite operators arrive as their parts, below autograd and autocast; a custom operator
    arrives whole, as the kernel that it stands for. ``places=True`` finds the Python line of each operator,
    which is slow, so captures leave it off.
    """

    def __init__(self, *, places: bool = False) -> None:
        super().__init__()
        self.ops: list[RecordedOp] = []
        self._places = places

    def admit(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before an operator runs; raise to refuse it."""

    def record(self, op: RecordedOp) -> None:
        """Called after an operator ran; the default keeps it in ``ops``."""
        self.ops.append(op)

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.admit(func, args, kwargs)
        outputs = func(*args, **kwargs)
        where = caller_place() if self._places else None
        self.record(RecordedOp(func, args, kwargs, outputs, where, current_provider()))
        return outputs


class FunctionWatch(TorchFunctionMode):
    """Hands every torch function that Python calls to ``on_call``, which may raise to refuse it.

    Host reads such as ``tolist`` and ``numpy`` reach no operator on a CPU, so a dispatch mode cannot see
    them. Functions that torch's own Python code calls in turn are not seen. ``on_call`` returns the names
    of operators that are harmless as parts of this function; ``tolerated`` holds them while it runs.
    """

    def __init__(self, on_call: Callable[[Any, Sequence[Any], dict[str, Any]], frozenset[str]]) -> None:
        super().__init__()
        self._on_call = on_call
        self.tolerated: frozenset[str] = frozenset()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.tolerated = self._on_call(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        finally:
            self.tolerated = frozenset()
