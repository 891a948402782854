"""Every fast binding leads to the overload that it stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dspark_factory.pipeline.graph_bindings import _BINDINGS, fastest_call
from dspark_factory.pipeline.recorder import OpRecorder

INDEX = torch.tensor([0, 1])
A, B, C = torch.rand(4, 4), torch.rand(4, 4), torch.rand(2, 4, 4)
BINDING_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "_softmax.default": (A, -1, False), "add.Tensor": (A, B), "add_.Tensor": (A, B), "bmm.default": (C, C),
    "addmm.default": (A[0], A, B), "cat.default": ([A, B], -1), "clamp.default": (A, None, 0.5),
    "copy_.default": (A, B), "div.Tensor": (A, B), "expand.default": (A[0], [4, 4]), "mm.default": (A, B),
    "gather.default": (A, 1, INDEX[None]), "index_copy_.default": (A, 0, INDEX, B[:2]),
    "index_select.default": (A, 0, INDEX), "mean.dim": (A, [1], True), "mul.Tensor": (A, B),
    "mul_.Tensor": (A, B), "permute.default": (C, [2, 0, 1]), "pow.Tensor_Scalar": (A, 2),
    "select.int": (A, 0, 1), "split_with_sizes.default": (A, [1, 3], -1), "squeeze.dim": (A[:1], 0),
    "stack.default": ([A, B],), "sub.Tensor": (A, B), "sum.dim_IntList": (A, [1], True),
    "topk.default": (A, 2, -1, True, False), "transpose.int": (A, 0, 1), "unsqueeze.default": (A, 0),
    "view.default": (A, [2, 8]), "where.self": (A > B, A, B),
}  # fmt: skip


@pytest.mark.parametrize("func", _BINDINGS, ids=str)
def test_each_binding_reaches_the_very_same_overload(func: Any) -> None:
    arguments = BINDING_ARGUMENTS.get(str(func).removeprefix("aten."), (A,))
    with torch.no_grad(), OpRecorder() as recorder:
        fastest_call(func, {})(*arguments)
    assert [op.func for op in recorder.ops] == [func]


@pytest.mark.parametrize("name", ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor"])
def test_bindings_treat_numbers_like_their_overload(name: str) -> None:
    packet, overload = name.split(".")
    func = getattr(getattr(torch.ops.aten, packet), overload)
    half = A.bfloat16()
    assert torch.equal(fastest_call(func, {})(half, 0.1), func(half, 0.1))
    assert fastest_call(func, {"alpha": 2}) is func._op
