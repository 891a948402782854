"""The operator recorder: order, outputs, places and providers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dspark_factory.pipeline.recorder import (
    FunctionWatch,
    OpRecorder,
    caller_place,
    current_provider,
    describe_op,
    provider_of,
    provider_scope,
    raising_place,
    tensors_in,
)


def test_operators_are_recorded_in_order_with_arguments_and_outputs() -> None:
    x = torch.ones(2, 3)
    with torch.no_grad(), OpRecorder() as recorder:
        y = x.view(3, 2)
        y.mul_(2)
        torch.cat([y, y], dim=1)
    assert [op.func._schema.name for op in recorder.ops] == ["aten::view", "aten::mul_", "aten::cat"]
    view, mul, cat = recorder.ops
    assert view.args[0] is x
    assert view.outputs is y
    assert mul.outputs is y, "an in-place operator returns its argument itself"
    assert all(tensor is y for tensor in tensors_in(cat.args))


def test_places_are_found_only_on_request_and_lie_outside_torch() -> None:
    x = torch.ones(2)
    with OpRecorder() as without:
        x.neg()
    with OpRecorder(places=True) as recorder:
        torch.nn.functional.softmax(x, dim=0)
    assert [op.where for op in without.ops] == [None]
    assert all(op.where is not None and "test_recorder.py:" in op.where for op in recorder.ops)


def test_the_innermost_provider_is_stored() -> None:
    x = torch.ones(1)
    assert current_provider() is None
    with OpRecorder() as recorder:
        x.neg()
        with provider_scope("outer"):
            x.neg()
            with provider_scope("inner"):
                x.neg()
            x.neg()
    assert [op.provider for op in recorder.ops] == [None, "outer", "inner", "outer"]


def test_an_error_keeps_the_innermost_provider_that_it_left() -> None:
    with pytest.raises(ZeroDivisionError) as caught, provider_scope("outer"), provider_scope("inner"):
        _ = 1 / 0
    assert provider_of(caught.value) == "inner"
    assert current_provider() is None
    assert provider_of(ValueError()) is None


def test_a_custom_operator_arrives_whole() -> None:
    @torch.library.custom_op("dspark_test::double_rows", mutates_args=())
    def double_rows(x: Tensor) -> Tensor:
        return (x + x).clone()

    with torch.no_grad(), OpRecorder() as recorder:
        double_rows(torch.ones(2))
    assert [op.func._schema.name for op in recorder.ops][-1] == "dspark_test::double_rows"


def test_admit_can_refuse_before_the_operator_runs() -> None:
    class Refusing(OpRecorder):
        def admit(self, func: Any, args: Any, kwargs: Any) -> None:
            if func is torch.ops.aten.zero_.default:
                raise PermissionError

    x = torch.ones(2)
    with pytest.raises(PermissionError), torch.no_grad(), Refusing():
        x.zero_()
    assert x.tolist() == [1, 1]


def test_function_watch_sees_host_reads_that_reach_no_operator() -> None:
    seen: list[str] = []

    def note(func: Any, args: Any, kwargs: Any) -> frozenset[str]:
        seen.append(func.__name__)
        return frozenset()

    x = torch.ones(2)
    with OpRecorder() as recorder, FunctionWatch(note):
        x.tolist()
        x.cpu()
    assert recorder.ops == []
    assert seen == ["tolist", "cpu"]


def test_tolerated_operators_hold_while_the_function_runs() -> None:
    watch = FunctionWatch(lambda func, args, kwargs: frozenset({func.__name__}))
    during: list[frozenset[str]] = []

    class Noting(OpRecorder):
        def record(self, op: Any) -> None:
            during.append(watch.tolerated)

    x = torch.ones(2)
    with watch, Noting():
        x.neg()
    assert during == [frozenset({"neg"})]
    assert watch.tolerated == frozenset()


def test_places_and_descriptions() -> None:
    assert "test_recorder.py:" in caller_place()
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2).view(3)
    assert "test_recorder.py:" in raising_place(caught.value)
    assert describe_op("aten.x", None) == "aten.x"
    assert describe_op("aten.x", "p", "f.py:1") == "aten.x (provider 'p', f.py:1)"
