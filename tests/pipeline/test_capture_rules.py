"""What a device graph refuses, an eager graph refuses too, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.graphs import EagerGraph
from dspark_factory.pipeline.recorder import provider_scope

X, INDEX, MASK = torch.randn(4, 3), torch.tensor([0, 1]), torch.tensor([True, False, True, False])

REFUSED: dict[str, Callable[[], Any]] = {
    "item": lambda: X[0, 0].item(),
    "int": lambda: int(X[0, 0]),
    "branch": lambda: 1 if X.sum() > 0 else 0,
    "range": lambda: list(range(INDEX[1])),
    "tolist": lambda: X.tolist(),
    "numpy": lambda: X.numpy(),
    "array": lambda: np.array(X),
    "print": lambda: str(X),
    "contains": lambda: 1 in INDEX,
    "cpu": lambda: X.cpu(),
    "equal": lambda: torch.equal(X, X),
    "allclose": lambda: torch.allclose(X, X),
    "nonzero": lambda: X.nonzero(),
    "where without values": lambda: torch.where(X > 0),
    "masked_select": lambda: torch.masked_select(X, X > 0),
    "unique": lambda: torch.unique(INDEX),
    "bincount": lambda: torch.bincount(INDEX),
    "boolean index": lambda: X[MASK],
    "boolean index store": lambda: X.__setitem__(MASK, X[:2]),
    "boolean index_put_": lambda: X.index_put_((MASK,), X.new_zeros(())),
    "repeat_interleave": lambda: torch.repeat_interleave(X[:2], INDEX, dim=0),
    "one_hot without classes": lambda: F.one_hot(INDEX),
    "tensor from numbers": lambda: torch.tensor([1, 2]),
    "scalar tensor from number": lambda: X + torch.tensor(1.0),
    "as_tensor": lambda: torch.as_tensor([1, 2]),
    "new_tensor": lambda: X.new_tensor([1, 2]),
    "from_numpy": lambda: torch.from_numpy(np.zeros(3)),
    "list index": lambda: X[[0, 1]],
    "number through index": lambda: X.__setitem__(INDEX, 1.0),
    "number through list": lambda: X.__setitem__([0, 1], 1.0),
    "number through array": lambda: X.__setitem__((0, np.array([0, 1])), 1.0),
    "set_": lambda: X.set_(torch.zeros(2)),
}

ALLOWED: dict[str, Callable[[], Any]] = {
    "number store": lambda: X.__setitem__((0, slice(1, 3)), 1.0),
    "number through mask": lambda: X.__setitem__(MASK, 1.0),
    "as_tensor of a tensor": lambda: torch.as_tensor(X),
    "repeat_interleave of known size": lambda: torch.repeat_interleave(X[:2], INDEX, dim=0, output_size=1),
    "repeat_interleave of a number": lambda: X.repeat_interleave(2, dim=0),
    "one_hot with classes": lambda: F.one_hot(INDEX, num_classes=3),
    "factories": lambda: torch.arange(4) + torch.full((4,), 2) + torch.zeros(4),
    "masked_fill": lambda: X.masked_fill(X > 0, 0.0),
    "index_put_ with integers": lambda: X.index_put_((INDEX,), X[2:].clone()),
    "casts": lambda: X.to(torch.bfloat16).to(X.device),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_a_device_refuses_is_refused_with_provider_and_place(name: str) -> None:
    def step() -> None:
        with provider_scope("culprit"):
            REFUSED[name]()

    graph = EagerGraph()
    with pytest.raises(CaptureError, match=r"culprit.*test_capture_rules\.py:\d+.*Instead: ") as caught:
        graph.capture(step)
    assert "cannot capture" in str(caught.value)
    with pytest.raises(CaptureError, match="nothing is captured"):
        graph.replay()
    graph.capture(lambda: X.add_(0))
    graph.replay()


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_what_a_device_captures_is_captured(name: str) -> None:
    graph = EagerGraph()
    graph.capture(ALLOWED[name])
    graph.replay()


def test_a_refusal_that_the_step_swallows_still_fails_the_capture() -> None:
    def step() -> None:
        try:
            X.sum().item()
        except Exception:
            X.add_(0)

    with pytest.raises(CaptureError, match="item"):
        EagerGraph().capture(step)
