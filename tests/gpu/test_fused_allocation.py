"""Dealing rows in one compiled kernel, against the torch function."""

from __future__ import annotations

import pytest
import torch

from dspark_factory.speculative.allocation import allocate_rows

pytestmark = pytest.mark.gpu
REQUESTS = [1, 2, 3, 7, 31, 64, 100, 256, 1000, 1024, 2047, 4096]


def step(requests: int, block: int, levels: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Survivals and caps; few levels of confidence make most survivals equal, and zeros of some."""
    options = {"device": "cuda", "generator": torch.Generator(device="cuda").manual_seed(seed)}
    confidences = torch.rand(requests, block, **options)
    if levels:
        confidences = (confidences * levels).round() / levels
    caps = torch.randint(0, block + 3, (requests,), **options, dtype=torch.int32)
    return confidences.cumprod(1), caps


@pytest.mark.parametrize("levels", [0, 1, 2, 4])
@pytest.mark.parametrize("block", [1, 5, 7, 16])
@pytest.mark.parametrize("requests", REQUESTS)
def test_rows_equal_the_torch_function(requests, block, levels):
    from dspark_factory.speculative.fused_allocation import fused_allocate_rows

    survivals, caps = step(requests, block, levels, seed=requests + block)
    anchors, most = int((caps > 0).sum()), int(caps.clamp(max=block + 1).sum())
    for budget in {0, anchors - 1, anchors, anchors + 1, (anchors + most) // 2, most - 1, most, most + 9}:
        allowed = torch.tensor([budget], device="cuda")
        assert torch.equal(
            fused_allocate_rows(survivals, caps, allowed), allocate_rows(survivals, caps, allowed)
        )


def test_a_captured_graph_follows_survivals_caps_and_budget():
    from dspark_factory.speculative.fused_allocation import fused_allocate_rows

    survivals, caps = step(256, 7, 0, seed=0)
    budget = torch.tensor([900], device="cuda")
    fused_allocate_rows(survivals, caps, budget)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fused = fused_allocate_rows(survivals, caps, budget)
        plain = allocate_rows(survivals, caps, budget)
    for seed in range(1, 4):
        fresh, fresh_caps = step(256, 7, 0, seed)
        survivals.copy_(fresh)
        caps.copy_(fresh_caps)
        budget.fill_(300 * seed)
        graph.replay()
        expected = allocate_rows(fresh, fresh_caps, budget)
        assert torch.equal(fused, expected)
        assert torch.equal(plain, expected)
