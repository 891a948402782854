"""What may not stand inside a captured region, one rule set for eager graphs, CUDA graphs and the lint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn.functional import one_hot

FindingKind = Literal[
    "host_sync", "data_dependent_shape", "host_copy", "late_allocation", "rebound_buffer", "python_value"
]


class Breach(NamedTuple):
    """Why a call cannot be captured: kinds of finding, what it does to a capture, what to change."""

    kinds: tuple[FindingKind, ...]
    effect: str
    change: str


Rule = Callable[[Sequence[Any], dict[str, Any]], "Breach | None"]

_MASK_ADVICE = "keep the shape fixed: torch.where, masked_fill, or integer indices into a fixed-size buffer"
_BUFFER_ADVICE = "make it once outside the step and keep it in a declared buffer"
_READ = Breach(
    ("host_sync",),
    "reads a device value on the host; a capture fails here",
    "keep the value on the device, or stage it as a host input before the launch",
)
_MADE_FROM_HOST = Breach(
    ("host_copy",),
    "makes a tensor from host values inside the region; on CUDA that is a blocking host-to-device copy "
    "and a capture fails here",
    _BUFFER_ADVICE,
)
_MASK_INDEX = Breach(
    ("host_sync",),
    "indexes with a boolean mask, which finds the number of set entries on the host; a capture fails here",
    _MASK_ADVICE,
)
_HOST_SCALAR_STORE = Breach(
    ("host_copy",),
    "stores a Python number through an index tensor; on CUDA the number is copied from the host first and a "
    "capture fails here",
    "use index_fill_ or scatter_ with the number, or index_put_ with a device tensor",
)


def _shape_breach(effect: str, advice: str = _MASK_ADVICE) -> Breach:
    return Breach(
        ("host_sync", "data_dependent_shape"), f"{effect}; the output shape depends on data", advice
    )


_REFUSED: dict[str, Breach] = {
    "aten::_local_scalar_dense": _READ,
    "aten::item": _READ,
    "aten::is_nonzero": _READ,
    "aten::equal": _READ,
    "aten::allclose": _READ,
    "aten::nonzero": _shape_breach("counts nonzero entries on the host"),
    "aten::nonzero_numpy": _shape_breach("counts nonzero entries on the host"),
    "aten::argwhere": _shape_breach("counts nonzero entries on the host"),
    "aten::masked_select": _shape_breach("counts selected entries on the host"),
    "aten::bincount": _shape_breach("reads the largest value on the host", "use scatter_add_ into a buffer"),
    "aten::_unique": _shape_breach("counts distinct values on the host"),
    "aten::_unique2": _shape_breach("counts distinct values on the host"),
    "aten::unique_dim": _shape_breach("counts distinct values on the host"),
    "aten::unique_consecutive": _shape_breach("counts distinct values on the host"),
    "aten::unique_dim_consecutive": _shape_breach("counts distinct values on the host"),
    "aten::lift_fresh": _MADE_FROM_HOST,
    "aten::set_": Breach(
        ("rebound_buffer",), "points a tensor at other memory, which a replay does not repeat", "use copy_"
    ),
    "aten::resize_": Breach(
        ("rebound_buffer",), "may move a tensor to other memory; a replay keeps the old address", "use copy_"
    ),
}


def _repeat_rule(args: Sequence[Any], kwargs: dict[str, Any]) -> Breach | None:
    if kwargs.get("output_size") is not None:
        return None
    return _shape_breach("adds up the repeats on the host", "pass output_size")


def _mask_rule(args: Sequence[Any], kwargs: dict[str, Any]) -> Breach | None:
    masked = any(isinstance(index, Tensor) and _is_mask(index) for index in args[1])
    return _MASK_INDEX if masked else None


def _device_breach(source: torch.device, target: torch.device) -> Breach | None:
    if source == target:
        return None
    effect = f"copies from {source} to {target} inside the region; a capture fails here or freezes the values"
    return Breach(("host_copy",), effect, "copy before or after the launch, through a declared buffer")


def _copy_rule(args: Sequence[Any], kwargs: dict[str, Any]) -> Breach | None:
    source = args[1]
    if source.dim() == 0 and source.device.type == "cpu":
        return None  # becomes a fill with a number
    return _device_breach(source.device, args[0].device)


def _to_copy_rule(args: Sequence[Any], kwargs: dict[str, Any]) -> Breach | None:
    target = kwargs.get("device")
    return None if target is None else _device_breach(args[0].device, target)


def _is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


_CHECKED: dict[str, Rule] = {
    "aten::index": _mask_rule,
    "aten::index_put": _mask_rule,
    "aten::index_put_": _mask_rule,
    "aten::_index_put_impl_": _mask_rule,
    "aten::_unsafe_index": _mask_rule,
    "aten::copy_": _copy_rule,
    "aten::_to_copy": _to_copy_rule,
}


@cache
def _rule_of(func: OpOverload) -> Breach | Rule | None:
    name = func._schema.name
    if name == "aten::repeat_interleave" and func._overloadname == "Tensor":
        return _repeat_rule
    return _REFUSED.get(name) or _CHECKED.get(name)


def operator_breach(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Breach | None:
    """Why this operator call cannot be captured, or ``None``."""
    rule = _rule_of(func)
    return rule if rule is None or isinstance(rule, Breach) else rule(args, kwargs)


_HOST_READS = tuple(
    getattr(Tensor, name)
    for name in (
        "tolist", "numpy", "item", "__bool__", "__int__", "__float__", "__complex__", "__index__",
        "__array__", "__contains__", "__repr__", "__format__",
    )
)  # fmt: skip
_PLAIN_INDEX = (Tensor, int, slice, type(None), type(...))
_NUMBER_STORE = frozenset({"aten::lift_fresh", "aten::index_put_"})
_HOST_CHECK = frozenset({"aten::_local_scalar_dense"})
_TENSOR_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
_TO_HOST = Breach(
    ("host_copy",),
    "copies to the host inside the region; a capture fails here",
    "copy after the launch, from a declared output buffer",
)


def function_breach(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Breach | None:
    """Why this torch function called from Python cannot be captured, or ``None``."""
    if func in _HOST_READS:
        return _READ
    if func is Tensor.cpu:
        return _TO_HOST
    if func in _TENSOR_MAKERS:
        keeps = func in (torch.as_tensor, torch.asarray) and args and isinstance(args[0], Tensor)
        return None if keeps else _MADE_FROM_HOST
    if func is Tensor.__setitem__ and isinstance(args[2], int | float | complex):
        return _store_breach(args[1])
    return None


def tolerated_operators(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> frozenset[str]:
    """Operators that this torch function runs on a CPU only, so that they are no breach inside of it.

    The number of ``tensor[index] = number`` travels in a scalar tensor that kernels take as an argument, and
    ``one_hot`` with the number of classes given checks its input on CPUs and not on CUDA.
    """
    if func is Tensor.__setitem__ and isinstance(args[2], int | float | complex):
        return _NUMBER_STORE  # function_breach has looked at the whole assignment
    if func is one_hot and (args[1] if len(args) > 1 else kwargs.get("num_classes", -1)) >= 0:
        return _HOST_CHECK
    return frozenset()


def _store_breach(index: Any) -> Breach | None:
    parts = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(part, _PLAIN_INDEX) for part in parts):
        return _MADE_FROM_HOST  # a list or an array becomes an index tensor
    tensors = [part for part in parts if isinstance(part, Tensor) and part.dim() > 0]
    if not tensors or (len(tensors) == 1 and _is_mask(tensors[0])):
        return None
    return _MASK_INDEX if any(map(_is_mask, tensors)) else _HOST_SCALAR_STORE
