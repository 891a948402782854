"""Eager graphs: replay equals eager, values and addresses are frozen, memory stays flat."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.graphs import CudaGraph, EagerGraph, create_graph
from dspark_factory.pipeline.recorder import provider_scope

Step = Callable[[], None]


def captured(step: Step) -> EagerGraph:
    graph = EagerGraph()
    graph.capture(step)
    return graph


def run_eagerly(step: Step) -> None:
    with torch.no_grad():
        step()


ROWS, WIDTH = 4, 6


def _shifted_view(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    h.view(-1)[WIDTH:].mul_(0.5)
    return h


def _half_in_place(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    left, _right = h.chunk(2, dim=1)
    left.add_(1)
    return h


def _through_pool(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    arena["pool"].index_put_((arena["slots"],), h)
    return h + arena["pool"][arena["slots"].flip(0)]


def _accumulate(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    arena["pool"].index_put_((arena["slots"],), h, accumulate=True)
    return arena["pool"][:ROWS] - h


def _masked(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    h[h > 1] = 0.25
    return torch.where(h > 0, h, 0.0)


def _row_store(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    arena["pool"][2] = h[1]
    arena["pool"][3, 1:3] = 7
    return h + arena["pool"][2]


def _attention(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    return F.scaled_dot_product_attention(h[None], arena["pool"][None], arena["pool"][None])[0]


def _heads(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    heads = h.view(ROWS, 2, WIDTH // 2).transpose(0, 1).contiguous()
    return torch.cat([part.squeeze(0) for part in heads.split(1)], dim=-1).detach()


def _top(h: Tensor, arena: dict[str, Tensor]) -> Tensor:
    values, indices = h.topk(3, dim=-1)
    return torch.zeros_like(h).scatter_(1, indices, values) + F.one_hot(indices[:, 0], WIDTH)


BLOCKS = {
    "linear": lambda h, arena: F.linear(h, arena["weight"], arena["bias"]),
    "norm": lambda h, arena: F.rms_norm(h, (WIDTH,), arena["bias"]),
    "softmax": lambda h, arena: h.softmax(-1).to(torch.bfloat16).float(),
    "shifted view": _shifted_view,
    "half in place": _half_in_place,
    "through pool": _through_pool,
    "accumulate": _accumulate,
    "masked": _masked,
    "row store": _row_store,
    "attention": _attention,
    "heads": _heads,
    "top": _top,
    "einsum": lambda h, arena: torch.einsum("rw,vw->rv", h, arena["weight"]),
    "foreach": lambda h, arena: torch.stack(torch._foreach_mul([h, h.neg()], 0.5)).sum(0),
}


def make_arena(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "input": torch.randn(ROWS, WIDTH, generator=generator),
        "output": torch.zeros(ROWS, WIDTH),
        "weight": torch.randn(WIDTH, WIDTH, generator=generator),
        "bias": torch.randn(WIDTH, generator=generator),
        "pool": torch.randn(8, WIDTH, generator=generator),
        "slots": torch.randperm(8, generator=generator)[:ROWS],
    }


def make_step(names: list[str], arena: dict[str, Tensor]) -> Step:
    def step() -> None:
        h = arena["input"] * 1.5
        for name in names:
            h = BLOCKS[name](h, arena)
        arena["output"].copy_(h)

    return step


def refill(arena: dict[str, Tensor], seed: int) -> None:
    for name, tensor in make_arena(seed).items():
        arena[name].copy_(tensor)


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(BLOCKS)), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_replay_equals_eager_bit_for_bit(names: list[str], seed: int) -> None:
    replayed, eager = make_arena(seed), make_arena(seed)
    graph = captured(make_step(names, replayed))
    for other_inputs in (seed + 1, seed + 2):
        refill(replayed, other_inputs)
        refill(eager, other_inputs)
        graph.replay()
        run_eagerly(make_step(names, eager))
        for name in eager:
            assert torch.equal(replayed[name], eager[name]), name


def test_replay_ignores_the_modes_of_the_caller() -> None:
    arena = make_arena(0)
    graph = captured(make_step(["linear", "softmax"], arena))
    graph.replay()
    expected = arena["output"].clone()
    for mode in (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.enable_grad()):
        arena["output"].zero_()
        with mode:
            graph.replay()
        assert torch.equal(arena["output"], expected)
        assert not arena["output"].is_inference()


def test_random_numbers_are_drawn_anew_at_each_replay() -> None:
    noise = torch.zeros(64)
    graph = captured(lambda: noise.normal_())
    graph.replay()
    first = noise.clone()
    graph.replay()
    assert not torch.equal(noise, first)


@pytest.mark.parametrize("seq_len", [16, 129, 4096])
def test_values_read_from_a_buffer_follow_their_length(seq_len: int) -> None:
    """Field report 12: captured at length 16, right at every length: it is read, not baked in."""
    keys, length = torch.randn(4096), torch.tensor([16])
    out, positions = torch.zeros(1), torch.arange(4096)

    def step() -> None:
        out.copy_(torch.where(positions < length, keys, 0.0).sum())

    graph = captured(step)
    length.fill_(seq_len)
    graph.replay()
    assert torch.equal(out[0], torch.where(positions < seq_len, keys, 0.0).sum())


def test_a_python_value_is_frozen() -> None:
    """Field report 12: a Python value that varies is baked in at capture and never seen again."""
    counter, calls = torch.zeros(1), []

    def step() -> None:
        calls.append(None)
        counter.add_(len(calls))

    graph = captured(step)
    counter.zero_()
    for _ in range(3):
        graph.replay()
    assert counter.item() == 3, "1 was frozen and added three times"
    assert len(calls) == 1, "no Python of the step runs at replay"


def test_an_address_is_frozen() -> None:
    """Field report 11: rebinding a Python attribute is not replayed, the old memory is used on."""

    class Holder:
        locations = torch.tensor([0])

    ring, value = torch.zeros(4), torch.ones(1)
    graph = captured(lambda: ring.index_put_((Holder.locations,), value))
    first = Holder.locations
    Holder.locations = torch.tensor([3])
    ring.zero_()
    graph.replay()
    assert ring.tolist() == [1, 0, 0, 0]
    first.fill_(2)
    graph.replay()
    assert ring.tolist() == [1, 0, 1, 0], "an update in place is seen"


def test_first_use_work_does_not_run_at_replay() -> None:
    """Field report 13: what a provider does on first use happens before replay, never in it."""
    tuned: list[int] = []
    out = torch.zeros(2)

    def step() -> None:
        if not tuned:
            tuned.append(1)
        out.add_(1)

    run_eagerly(step)
    assert len(tuned) == 1
    graph = captured(step)
    graph.replay()
    assert len(tuned) == 1
    assert out.tolist() == [3, 3]


def test_an_error_in_the_step_is_chained_and_names_its_provider() -> None:
    def step() -> None:
        with provider_scope("shapes"):
            torch.zeros(2).view(3)

    x = torch.zeros(2)
    graph = captured(lambda: x.add_(1))
    with pytest.raises(CaptureError, match=r"provider 'shapes'.*shape") as caught:
        graph.capture(step)
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(CaptureError, match="nothing is captured"):
        graph.replay()  # not the graph from before either
    graph.capture(lambda: x.add_(1))
    graph.replay()


class LazyProvider:
    """The seed: its buffer is made on first use, which is the autotune run inside inference mode."""

    def __init__(self) -> None:
        self.lens: Tensor | None = None

    def compute(self) -> None:
        with provider_scope("extend_seq_lens"):
            if self.lens is None:
                self.lens = torch.zeros(8, dtype=torch.int32)
            self.lens.fill_(6)


def test_the_seed_failure_appears_in_torchs_own_words() -> None:
    lazy = LazyProvider()
    with torch.inference_mode():
        lazy.compute()
    story = "extend_seq_lens.*Inplace update to inference tensor outside InferenceMode is not allowed"
    with pytest.raises(CaptureError, match=story) as caught:
        captured(lazy.compute)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_capture_runs_in_one_mode_whatever_mode_the_caller_is_in(mode: Any) -> None:
    made: list[Tensor] = []
    with mode():
        captured(lambda: made.append(torch.zeros(2)))
    assert not made[0].is_inference()
    assert not made[0].requires_grad


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def test_memory_stays_flat_over_2000_replays() -> None:
    arena = make_arena(0)
    graph = captured(make_step(sorted(BLOCKS), arena))
    graph.replay()
    before = live_tensors()
    for _ in range(2000):
        graph.replay()
    assert live_tensors() == before
    assert graph.nbytes == 0


def test_registers_are_freed_after_their_last_use() -> None:
    out = torch.zeros(1000, 1000)
    alive: list[int] = []

    @torch.library.custom_op("dspark_test::count_live", mutates_args={"x"})
    def count_live(x: Tensor) -> None:
        gc.collect()
        alive.append(sum(issubclass(type(t), Tensor) and t.shape == x.shape for t in gc.get_objects()))

    def step() -> None:
        h = out + 1
        for _ in range(50):
            h = h + 1
        count_live(h)
        out.copy_(h)

    graph = captured(step)
    graph.replay()
    assert alive[0] > 50, "a capture keeps every intermediate result"
    assert alive[1] <= 4


def test_reset_lets_go_of_constants() -> None:
    graph = captured(make_step(["linear"], make_arena(0)))
    before = live_tensors()
    graph.reset()
    assert live_tensors() < before
    with pytest.raises(CaptureError, match="nothing is captured"):
        graph.replay()


def test_create_graph_knows_its_devices() -> None:
    assert isinstance(create_graph("cpu"), EagerGraph)
    assert isinstance(create_graph("cuda"), CudaGraph)
    with pytest.raises(CaptureError, match="'tpu'"):
        create_graph("tpu")


def test_an_intermediate_result_that_bypasses_the_operators_is_refused() -> None:
    x = torch.ones(4)
    with pytest.raises(CaptureError, match="call that no operator shows"):
        captured(lambda: torch.from_dlpack(x + 1).add_(1))
