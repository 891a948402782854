"""Top-k of the indexer: a pure function of scores and count."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.attention.indexer import top_entries


def plain(scores: list[float], count: int, topk: int) -> list[int]:
    """Sort by score, earlier entry first among equals."""
    best = sorted(range(count), key=lambda entry: (-scores[entry], entry))[:topk]
    return sorted(best) + [-1] * (min(topk, len(scores)) - len(best))


SCORES = st.lists(
    st.one_of(st.just(0.0), st.just(-0.0), st.floats(-(2.0**90), 2.0**90, width=32)), min_size=1, max_size=40
)


@given(scores=SCORES, data=st.data())
def test_selection_equals_a_stable_sort(scores, data):
    count = data.draw(st.integers(0, len(scores)))
    topk = data.draw(st.integers(1, 12))
    chosen = top_entries(torch.tensor([scores]), torch.tensor([count]), topk)
    assert chosen.tolist() == [plain(scores, count, topk)]


def test_ties_at_zero_go_to_the_earlier_entry_in_any_batch():
    """When ReLU closes every head all scores are 0; a verify row and a later decode must pick alike."""
    alone = top_entries(torch.zeros(1, 64), torch.tensor([50]), 8)
    together = top_entries(torch.zeros(6, 64), torch.tensor([48, 49, 50, 50, 51, 64]), 8)
    wider = top_entries(torch.zeros(1, 512), torch.tensor([50]), 8)
    assert alone.tolist()[0] == together.tolist()[2] == wider.tolist()[0] == list(range(8))


def test_entries_beyond_the_count_do_not_matter():
    scores = torch.randn(3, 30)
    counts = torch.tensor([0, 7, 20])
    first = top_entries(scores, counts, 5)
    scores[torch.arange(30) >= counts.unsqueeze(1)] = float("nan")
    assert torch.equal(top_entries(scores, counts, 5), first)
