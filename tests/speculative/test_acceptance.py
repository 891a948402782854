"""Acceptance: greedy against a loop, sampling against exact enumeration."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.speculative.acceptance import accept_greedy, accept_sampled, sample, softmax_at


@given(data=st.data())
def test_greedy_commits_the_leading_agreement_and_the_bonus(data):
    width = data.draw(st.integers(1, 6))
    row_len = data.draw(st.integers(0, width))
    draw = st.lists(st.integers(0, 1), min_size=width, max_size=width)
    target, own = data.draw(draw), data.draw(draw)
    expected = 0
    if row_len:
        expected = 1
        while expected < row_len and target[expected - 1] == own[expected]:
            expected += 1
    got = accept_greedy(torch.tensor([target]), torch.tensor([own]), torch.tensor([row_len]))
    assert got.tolist() == [expected]


def target_probs(vocabulary: int, length: int, seed: int) -> dict[tuple[int, ...], torch.Tensor]:
    """A conditional distribution for every context of up to ``length`` tokens, with zeros in it."""
    generator = torch.Generator().manual_seed(seed)
    probs = {}
    for size in range(length + 1):
        for context in product(range(vocabulary), repeat=size):
            weights = torch.rand(vocabulary, generator=generator, dtype=torch.float64)
            weights[torch.rand(vocabulary, generator=generator) < 0.2] = 0
            weights[0] += 0.1
            probs[context] = weights / weights.sum()
    return probs


def first_tokens(p, q, drafts: tuple[int, ...], vocabulary: int, grid: int) -> dict[tuple[int, ...], float]:
    """Distribution of the committed tokens for given drafts, integrating the uniforms over a fine grid.

    Thresholds of a chain of two drafts are ratios of the probabilities, so midpoints of a fine grid integrate
    them up to the grid's width; the sum is compared with that tolerance.
    """
    points = (torch.arange(grid, dtype=torch.float64) + 0.5) / grid
    width = len(drafts) + 1
    cases = torch.cartesian_prod(*[points] * width).reshape(-1, width)
    count = len(cases)
    rows = torch.stack([p[drafts[:i]] for i in range(width)]).expand(count, -1, -1)
    draft_rows = (
        None if q is None else torch.stack([q[drafts[:i]] for i in range(width - 1)]).expand(count, -1, -1)
    )
    lens, tokens = accept_sampled(
        rows,
        torch.tensor([[0, *drafts]]).expand(count, -1),
        torch.full((count,), width),
        uniforms=cases,
        draft_probs=draft_rows,
    )
    outcome: dict[tuple[int, ...], float] = {}
    for length, own in zip(lens.tolist(), tokens.tolist(), strict=True):
        key = tuple(own[:length])
        outcome[key] = outcome.get(key, 0.0) + 1 / count
    return outcome


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sampled_drafts", [False, True])
def test_sampling_commits_the_targets_own_distribution(seed, sampled_drafts):
    """First and second committed token are distributed as if the target had drawn them, whatever the drafts."""
    vocabulary, grid = 3, 40
    p = target_probs(vocabulary, 3, seed)
    q = target_probs(vocabulary, 2, seed + 100) if sampled_drafts else None
    first = torch.zeros(vocabulary, dtype=torch.float64)
    for drafts in product(range(vocabulary), repeat=2):
        weight = (
            (1.0 if drafts == (1, 2) else 0.0)
            if q is None
            else float(q[()][drafts[0]] * q[drafts[:1]][drafts[1]])
        )
        if weight == 0.0:
            continue
        for tokens, share in first_tokens(p, q, drafts, vocabulary, grid).items():
            first[tokens[0]] += weight * share
    assert torch.allclose(first, p[()], atol=2.5 / grid)
    assert first.sum() == pytest.approx(1)


def test_a_draft_of_probability_one_is_always_accepted_and_of_zero_never():
    probs = torch.zeros(2, 2, 4)
    probs[0, 0, 2] = probs[0, 1, 1] = probs[1, 0, 3] = probs[1, 1, 1] = 1.0
    lens, tokens = accept_sampled(
        probs,
        torch.tensor([[0, 2], [0, 2]]),
        torch.tensor([2, 2]),
        uniforms=torch.tensor([[0.999, 0.999], [0.0, 0.0]]),
    )
    assert lens.tolist() == [2, 1]
    assert tokens[0].tolist() == [2, 1]
    assert tokens[1, 0] == 3


@given(
    weights=st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=9).filter(any),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_token_of_weight_zero_is_never_sampled(weights, uniform):
    token = int(sample(torch.tensor([weights]), torch.tensor([uniform])))
    assert weights[token] > 0


def test_sampling_frequencies_follow_the_weights():
    uniforms = torch.rand(40_000, generator=torch.Generator().manual_seed(0))
    weights = torch.tensor([[3.0, 0.0, 1.0, 4.0]]).expand(len(uniforms), -1)
    counts = torch.bincount(sample(weights, uniforms), minlength=4) / len(uniforms)
    assert torch.allclose(counts, torch.tensor([0.375, 0.0, 0.125, 0.5]), atol=0.01)


def test_temperature_zero_is_greedy():
    logits = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    probs = softmax_at(logits, torch.tensor([0.0, 1.0]))
    assert probs[0].tolist() == [0.0, 1.0, 0.0]
    torch.testing.assert_close(probs[1], logits[1].softmax(-1))


def test_a_padding_request_commits_nothing():
    probs = torch.full((1, 3, 4), 0.25)
    lens, _ = accept_sampled(
        probs, torch.zeros(1, 3, dtype=torch.long), torch.tensor([0]), uniforms=torch.zeros(1, 3)
    )
    assert lens.tolist() == [0]
