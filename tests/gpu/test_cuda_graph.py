"""CUDA graphs: replay equals eager, failures leave nothing behind, and the rules agree with the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.graphs import CudaGraph, create_graph
from dspark_factory.pipeline.recorder import provider_scope

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Arena:
    """Buffers on the device; weights are scaled so that repeated steps stay finite."""

    def __init__(self) -> None:
        self.x = torch.randn(4, 8, device="cuda")
        self.out = torch.zeros(4, 8, device="cuda")
        self.weight = torch.randn(8, 8, device="cuda") * 0.1
        self.index = torch.tensor([0, 1], device="cuda")
        self.mask = torch.tensor([True, False, True, False], device="cuda")

    def step(self) -> None:
        h = F.linear(self.x, self.weight).softmax(-1)
        self.out.copy_(h)
        self.out[1:3].mul_(2)


@pytest.fixture
def arena() -> Arena:
    return Arena()


@pytest.fixture
def stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


@pytest.fixture(autouse=True)
def _device_is_left_usable() -> Iterator[None]:
    yield
    torch.cuda.synchronize()
    torch.randn(2, device="cuda").sum().item()


def warm(step: Callable[[], Any], stream: torch.cuda.Stream) -> None:
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)


def test_replay_equals_eager(arena: Arena, stream: torch.cuda.Stream) -> None:
    warm(arena.step, stream)
    graph = create_graph("cuda", pool=torch.cuda.graph_pool_handle(), stream=stream)
    graph.capture(arena.step)
    for _ in range(3):
        arena.x.normal_()
        graph.replay()
        replayed = arena.out.clone()
        with torch.no_grad():
            arena.step()
        assert torch.equal(arena.out, replayed)
    assert graph.nbytes >= 0
    graph.reset()
    with pytest.raises(CaptureError, match="nothing is captured"):
        graph.replay()


def test_graphs_share_a_pool(arena: Arena, stream: torch.cuda.Stream) -> None:
    warm(arena.step, stream)
    pool = torch.cuda.graph_pool_handle()
    first, second = (CudaGraph(pool=pool, stream=stream) for _ in range(2))
    first.capture(arena.step)
    second.capture(lambda: arena.out.add_(arena.x @ arena.weight))
    first.replay()
    expected = arena.out + arena.x @ arena.weight
    second.replay()
    torch.testing.assert_close(arena.out, expected)


def test_values_and_addresses_are_frozen(arena: Arena, stream: torch.cuda.Stream) -> None:
    """Field reports 11 and 12: what Python rebinds or counts after capture is not seen at replay."""
    calls: list[None] = []

    def step() -> None:
        calls.append(None)
        arena.out.fill_(len(calls))
        arena.out.add_(arena.x)

    graph = CudaGraph(stream=stream)
    graph.capture(step)
    captured_x = arena.x
    captured_x.zero_()
    arena.x = torch.full_like(arena.out, 100.0)
    graph.replay()
    assert len(calls) == 1
    assert arena.out.unique().tolist() == [1.0]


def test_a_host_sync_leaves_generator_stream_and_the_next_capture_usable(
    arena: Arena, stream: torch.cuda.Stream
) -> None:
    before = torch.cuda.current_stream()

    def step() -> None:
        with provider_scope("culprit"):
            arena.out.add_(arena.x.sum().item())

    graph = CudaGraph(pool=torch.cuda.graph_pool_handle(), stream=stream)
    with pytest.raises(CaptureError, match="provider 'culprit'") as caught:
        graph.capture(step)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert torch.cuda.current_stream() == before
    torch.randn(4, device="cuda").sum().item()
    with pytest.raises(CaptureError, match="nothing is captured"):
        graph.replay()
    warm(arena.step, stream)
    graph.capture(arena.step)
    graph.replay()
    torch.cuda.synchronize()


def test_a_python_error_is_chained(arena: Arena, stream: torch.cuda.Stream) -> None:
    def step() -> None:
        arena.out.add_(1)
        raise ValueError("the step's own error")

    with pytest.raises(CaptureError, match="the step's own error") as caught:
        CudaGraph(stream=stream).capture(step)
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_seed_failure_appears_in_torchs_own_words(stream: torch.cuda.Stream) -> None:
    with torch.inference_mode():
        lens = torch.zeros(8, dtype=torch.int32, device="cuda")

    def step() -> None:
        with provider_scope("extend_seq_lens"):
            lens.fill_(6)

    story = r"extend_seq_lens.*Inplace update to inference tensor outside InferenceMode is not allowed"
    with pytest.raises(CaptureError, match=story):
        CudaGraph(stream=stream).capture(step)


def _store(target: Tensor, index: Any, value: Any) -> None:
    target[index] = value


REFUSED: dict[str, Callable[[Arena], Any]] = {
    "item": lambda a: a.x[0, 0].item(),
    "tolist": lambda a: a.x.tolist(),
    "cpu": lambda a: a.x.cpu(),
    "nonzero": lambda a: a.mask.nonzero(),
    "boolean index": lambda a: a.x[a.mask],
    "boolean index store": lambda a: _store(a.x, a.mask, a.out[:2]),
    "masked_select": lambda a: a.x.masked_select(a.x > 0),
    "unique": lambda a: torch.unique(a.index),
    "repeat_interleave": lambda a: torch.repeat_interleave(a.x[:2], a.index, dim=0),
    "one_hot without classes": lambda a: F.one_hot(a.index),
    "equal": lambda a: torch.equal(a.x, a.x + 1),
    "tensor": lambda a: torch.tensor([1, 2], device="cuda"),
    "list index": lambda a: a.x[[0, 1]],
    "number through list": lambda a: _store(a.x, [0, 1], 1.0),
    "number through index": lambda a: _store(a.x, a.index, 1.0),
}

ALLOWED: dict[str, Callable[[Arena], Any]] = {
    "number store": lambda a: _store(a.x, (0, slice(1, 3)), 1.0),
    "number through mask": lambda a: _store(a.x, a.mask, 1.0),
    "repeat_interleave of known size": lambda a: torch.repeat_interleave(
        a.x[:2], a.index, dim=0, output_size=1
    ),
    "one_hot with classes": lambda a: F.one_hot(a.index, num_classes=3),
    "index_put_": lambda a: a.out.index_put_((a.index,), a.x[:2]),
    "where": lambda a: torch.where(a.x > 0, a.x, 0.0),
    "topk": lambda a: a.x.topk(2),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_rules_refuse_the_device_refuses(arena: Arena, stream: torch.cuda.Stream, name: str) -> None:
    warm(lambda: REFUSED[name](arena), stream)
    with pytest.raises(CaptureError):
        CudaGraph(stream=stream).capture(lambda: REFUSED[name](arena))
    torch.randn(4, device="cuda").sum().item()


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_what_the_rules_allow_the_device_captures(arena: Arena, stream: torch.cuda.Stream, name: str) -> None:
    warm(lambda: ALLOWED[name](arena), stream)
    graph = CudaGraph(stream=stream)
    graph.capture(lambda: ALLOWED[name](arena))
    graph.replay()
    torch.cuda.synchronize()
