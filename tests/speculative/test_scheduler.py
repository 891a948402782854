"""Row scheduling against brute force over all row counts, and what a staircase of a cost does to early stop."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.errors import ConfigError, NoBucket
from dspark_factory.speculative.scheduler import VerifyCost, allocate, best_budget, early_stop, survival
from tests.speculative.test_published_arithmetic import ACCEPTANCE


def candidates(survivals: np.ndarray, caps: np.ndarray) -> dict[tuple[int, ...], float]:
    """Expected committed tokens of all row counts that the caps allow."""
    most = [min(cap, survivals.shape[1] + 1) for cap in caps]
    choices = product(*[range(1, cap + 1) if cap else [0] for cap in most])
    return {lens: tokens(survivals, lens) for lens in choices}


def tokens(survivals: np.ndarray, lens) -> float:
    return sum(1.0 + float(own[: n - 1].sum()) for own, n in zip(survivals, lens, strict=True) if n)


@st.composite
def steps(draw, rising_cost: bool = False):
    """Survivals, caps and a cost; eighths keep every sum exact, so equal throughputs are equal numbers."""
    requests, block = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    confidence = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.875, 1.0])
    rows = st.lists(confidence, min_size=block, max_size=block)
    survivals = survival(np.array(draw(st.lists(rows, min_size=requests, max_size=requests))))
    caps = np.array(draw(st.lists(st.integers(0, block + 2), min_size=requests, max_size=requests)))
    tiers = draw(st.sets(st.integers(1, 11), max_size=8)) | {12}
    seconds = draw(st.lists(st.integers(1, 12), min_size=len(tiers), max_size=len(tiers)))
    seconds = sorted(seconds) if rising_cost else seconds
    return survivals, caps, VerifyCost(sorted(tiers), seconds, base_seconds=draw(st.sampled_from([0.0, 2.0])))


@given(step=steps(), budget=st.integers(0, 14))
def test_allocation_commits_the_most_of_all_row_counts_within_the_budget(step, budget):
    survivals, caps, _ = step
    lens = tuple(allocate(survivals, caps, budget))
    possible = candidates(survivals, caps)
    allowed = max(budget, np.count_nonzero(caps))
    assert sum(lens) <= allowed
    assert possible[lens] == max(value for own, value in possible.items() if sum(own) <= allowed)


@given(step=steps())
def test_best_budget_is_the_smallest_of_the_highest_throughput(step):
    survivals, caps, cost = step
    rates = {lens: value / float(cost.at(sum(lens))) for lens, value in candidates(survivals, caps).items()}
    assert best_budget(survivals, caps, cost) == min(
        sum(lens) for lens, rate in rates.items() if rate == max(rates.values())
    )


def path(survivals: np.ndarray, caps: np.ndarray, cost: VerifyCost) -> list[tuple[float, tuple[int, ...]]]:
    """Throughput and row counts of every admission, in the order of survival, position and request."""
    lens = (caps > 0).astype(int)
    found = [(tokens(survivals, lens) / float(cost.at(lens.sum())), tuple(lens))]
    drafts = [
        (-survivals[r, j], j, r)
        for r, j in np.ndindex(survivals.shape)
        if j < caps[r] - 1 and survivals[r, j]
    ]
    for _, _, request in sorted(drafts):
        lens[request] += 1
        found.append((tokens(survivals, lens) / float(cost.at(lens.sum())), tuple(lens)))
    return found


@given(step=steps())
def test_early_stop_is_the_published_loop(step):
    survivals, caps, cost = step
    best, kept = -1.0, ()
    for rate, lens in path(survivals, caps, cost):
        if rate <= best:
            break
        best, kept = rate, lens
    assert tuple(early_stop(survivals, caps, cost)) == kept


@given(step=steps(rising_cost=True))
def test_early_stop_is_the_optimum_exactly_where_throughput_rises_all_the_way_to_it(step):
    survivals, caps, cost = step
    best = max(value / float(cost.at(sum(lens))) for lens, value in candidates(survivals, caps).items())
    rates = [rate for rate, _ in path(survivals, caps, cost)]
    rising = all(one < following for one, following in pairwise(rates[: rates.index(best) + 1]))
    lens = early_stop(survivals, caps, cost)
    assert (tokens(survivals, lens) / float(cost.at(lens.sum())) == best) == rising


def linear(rows: int, tile: int) -> VerifyCost:
    """10 ms and 20 µs per row, in tiles of rows."""
    tiers = np.arange(tile, rows + tile, tile)
    return VerifyCost(tiers.tolist(), (10e-3 + 20e-6 * tiers).tolist())


def drawn_survivals(requests: int, generator: np.random.Generator) -> np.ndarray:
    """The published acceptance of three domains, with noise of 1.2 on the logit that tells requests apart."""
    rates = np.array([ACCEPTANCE[domain, "DSpark"] for domain in ("math", "code", "chat")])
    own = rates[generator.integers(3, size=requests)]
    logits = np.log(own / (1 - own)) + generator.normal(0, 1.2, own.shape)
    return survival(1 / (1 + np.exp(-logits)))


def ratio_of_early_stop(requests: int, tile: int) -> float:
    """Mean throughput of early stop over that of the search for the best budget, on the same confidences."""
    generator, ratios = np.random.default_rng(0), []
    cost, caps = linear(8 * requests, tile), np.full(requests, 8)
    for _ in range(20):
        survivals = drawn_survivals(requests, generator)
        lens = (
            early_stop(survivals, caps, cost),
            allocate(survivals, caps, best_budget(survivals, caps, cost)),
        )
        early, best = (tokens(survivals, own) / float(cost.at(own.sum())) for own in lens)
        ratios.append(early / best)
    return float(np.mean(ratios))


@pytest.mark.parametrize("requests", [32, 64, 128])
def test_early_stop_dies_at_a_cliff_of_a_tiled_cost_and_only_there(requests):
    """Requests that divide a tile of 64 rows or fill it stand right before the cliff."""
    assert ratio_of_early_stop(requests, tile=64) < 0.95
    assert ratio_of_early_stop(requests, tile=1) == pytest.approx(1)


def test_survival_multiplies_along_the_block():
    assert survival(np.array([[0.5, 0.5, 1.0], [1.0, 0.0, 0.9]])).tolist() == [[0.5, 0.25, 0.25], [1, 0, 0]]


def test_equal_throughputs_go_to_the_smaller_budget():
    survivals, caps = np.array([[1.0, 1.0, 0.0]]), np.array([4])
    assert best_budget(survivals, caps, VerifyCost([1, 2, 3, 4], [1, 2, 3, 4])) == 1
    assert best_budget(survivals, caps, VerifyCost([4], [1])) == 3


def test_a_search_ends_at_the_last_tier_and_padding_alone_needs_no_rows():
    survivals, cost = np.ones((2, 3)), VerifyCost([2, 5], [1.0, 1.01])
    assert best_budget(survivals, np.array([4, 4]), cost) == 5
    assert early_stop(survivals, np.array([4, 0]), VerifyCost([2], [1.0])).tolist() == [2, 0]
    assert best_budget(survivals, np.array([0, 0]), cost) == 0
    assert early_stop(survivals, np.array([0, 0]), cost).tolist() == [0, 0]


@pytest.mark.parametrize("search", [best_budget, early_stop])
def test_anchors_beyond_the_last_tier_are_refused(search):
    with pytest.raises(NoBucket, match=r"step of 3 rows is beyond .* last tier of 2 rows"):
        search(np.ones((3, 1)), np.array([2, 2, 2]), VerifyCost([1, 2], [1.0, 1.0]))


def test_a_step_costs_what_the_smallest_tier_that_holds_it_costs():
    cost = VerifyCost([4, 8], [1.0, 3.0], base_seconds=0.5)
    assert cost.at(np.array([[1, 4], [5, 8]])).tolist() == [[1.5, 1.5], [3.5, 3.5]]
    with pytest.raises(NoBucket, match=r"step of 9 rows is beyond .* last tier of 8 rows"):
        cost.at(np.array([2, 9]))


def test_all_that_is_wrong_with_a_cost_is_told_at_once():
    with pytest.raises(ConfigError) as error:
        VerifyCost([4, 4], [1.0, float("nan"), 2.0], base_seconds=-1)
    assert len(error.value.reasons) == 4
    with pytest.raises(ConfigError, match="at least one row count"):
        VerifyCost([], [])
