"""Logits of every mode against the transformers library's own DeepSeek-V4, fp32, random weights."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_factory.factory import Assembly
from dspark_factory.planning.graph_keys import LayoutForm
from tests.oracle import MIXED, SHAPES, Driver, assembly_for, random_model, random_sequence

N = 6
OVERRIDES = [
    f"speculative.num_draft_tokens={N}",
    "speculative.verify_layout=ragged",
    "pipeline.max_requests=4",
    "pipeline.capture_requests=[1,2,4]",
    "pipeline.context_length=320",
    "pipeline.page_tokens=128",
    "pipeline.extend_rows=200",
    "pipeline.warmup_runs=1",
]


@pytest.fixture(scope="module", params=list(SHAPES))
def pair(request, tmp_path_factory):
    model = random_model(SHAPES[request.param])
    assembly = assembly_for(model, tmp_path_factory.mktemp(request.param), OVERRIDES)
    yield model, assembly
    assembly.close()


@pytest.fixture
def driver(pair):
    driver = Driver(pair[1])
    yield driver
    for sequence in list(driver.active):
        driver.leave(sequence)


def test_prefill_agrees_at_every_position_in_one_chunk_and_in_uneven_chunks(pair, driver):
    model, _ = pair
    driver.join(random_sequence(model, 180, seed=1))
    driver.join(random_sequence(model, 181, seed=2))
    driver.extend({0: 180})
    for chunk in (1, 2, 61, 4, 113):
        driver.extend({1: chunk})
    assert driver.compared == 361


def test_prompts_of_several_requests_extend_in_one_step(pair, driver):
    model, _ = pair
    for seed, length in enumerate((37, 5, 90)):
        driver.join(random_sequence(model, length, seed=seed + 10))
    driver.extend({0: 20, 1: 5, 2: 33})
    driver.extend({0: 17, 2: 57})
    assert driver.compared == 132


def test_decode_agrees_across_window_and_group_edges(pair, driver):
    model, _ = pair
    driver.join(random_sequence(model, 150, seed=3))
    driver.extend({0: 3})
    for _ in range(147):
        driver.decode([0])
    assert driver.compared == 150


@pytest.mark.parametrize("form", list(LayoutForm))
def test_verify_agrees_for_every_accept_length(pair, driver, form):
    model, _ = pair
    driver.join(random_sequence(model, 170, seed=4))
    driver.extend({0: 7})
    step = 0
    while driver.active[0].left > N:
        driver.verify({0: (N, 1 + step % N)}, form, seed=step)
        step += 1
    assert driver.compared > 160


def test_ragged_and_uniform_batches_of_mixed_lengths_agree(pair, driver):
    """Field report 28: requests of one batch verify and accept different numbers of rows."""
    model, _ = pair
    for seed, length in enumerate((120, 100, 90)):
        driver.join(random_sequence(model, length, seed=seed + 20))
    driver.extend({0: 60, 1: 5, 2: 31})
    for step in range(8):
        form = LayoutForm.RAGGED if step % 2 else LayoutForm.UNIFORM
        driver.verify({0: (6, 1 + step % 6), 1: (1, 1), 2: (3, 1 + step % 3)}, form, seed=step)
    assert driver.compared > 90


def test_a_batch_beyond_the_captured_buckets_runs_eagerly_and_agrees(pair, driver):
    model, assembly = pair
    for seed in range(3):
        driver.join(random_sequence(model, 40, seed=seed + 30))
    driver.extend({0: 9, 1: 12, 2: 3})
    graphs = dict(assembly.pipeline.graphs)
    assembly.pipeline.graphs.clear()
    try:
        driver.verify({0: (6, 2), 1: (4, 4), 2: (6, 1)}, LayoutForm.UNIFORM)
    finally:
        assembly.pipeline.graphs.update(graphs)
    driver.verify({0: (6, 3), 1: (4, 1), 2: (6, 6)}, LayoutForm.UNIFORM)


def test_the_context_limit_is_reached_exactly(pair, driver):
    model, assembly = pair
    limit = assembly.dims.context_length
    driver.join(random_sequence(model, limit, seed=5))
    driver.extend({0: 200})
    driver.extend({0: 111})
    driver.verify({0: (6, 6)}, LayoutForm.UNIFORM)
    driver.verify({0: (3, 3)}, LayoutForm.UNIFORM)
    assert driver.active[0].left == 0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> tuple[list, Assembly]:
    model = random_model(MIXED, seed=3)
    sequences = [random_sequence(model, length, seed=seed) for seed, length in enumerate((90, 130, 61, 200))]
    return sequences, assembly_for(model, tmp_path_factory.mktemp("mixed"), OVERRIDES)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["join", "extend", "verify", "verify", "verify", "decode", "leave"]),
        st.integers(0, 2**16),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
def test_any_schedule_of_joins_rejections_and_leaves_agrees(mixed, actions):
    """Slots are reused with whatever an earlier request left in pools, rings and pages."""
    sequences, assembly = mixed
    driver = Driver(assembly)
    waiting = list(sequences)
    try:
        for action, choice in actions:
            _act(driver, waiting, action, choice)
    finally:
        for sequence in list(driver.active):
            driver.leave(sequence)
    assert driver.assembly.pages.free_slots == 4


def _act(driver: Driver, waiting: list, action: str, choice: int) -> None:
    if action == "join" or not driver.active:
        if waiting and driver.assembly.pages.free_slots:
            driver.join(waiting.pop(choice % len(waiting)))
            driver.extend({len(driver.active) - 1: 1 + choice % 40})
        return
    index = choice % len(driver.active)
    if action == "leave":
        sequence = driver.active[index]
        driver.leave(sequence)
        waiting.append(sequence)
        return
    members = [i for i, sequence in enumerate(driver.active) if sequence.left > N and (choice >> i) & 1]
    if not members:
        return
    if action == "extend":
        driver.extend({i: min(1 + (choice >> 3 + i) % 30, driver.active[i].left) for i in members})
    elif action == "decode":
        driver.decode(members)
    else:
        rows = {i: 1 + (choice >> 2 * i) % N for i in members}
        plan = {i: (count, 1 + (choice >> i) % count) for i, count in rows.items()}
        driver.verify(plan, LayoutForm.RAGGED if choice % 2 else LayoutForm.UNIFORM, seed=choice)
