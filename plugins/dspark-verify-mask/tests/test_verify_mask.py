"""The mask removes what a row may not see and nothing else, and exists for its readers only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from dspark_verify_mask import plugin, tree_rows
from dspark_verify_mask.visibility import apply_verify_mask
from mask_reader import READER, binary_tree

from dspark_factory import build, load_config, plan
from dspark_factory.attention.rows import expand_rows, ring_rows, window_indices
from dspark_factory.attention.softmax import attend
from dspark_factory.config.schema import Config
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode, ragged_key, uniform_key
from dspark_factory.registry import buffer_plugins, register_plugin

SMALL = (
    "task=build",
    "pipeline.max_requests=3",
    "pipeline.capture_requests=[3]",
    "pipeline.context_length=512",
)
SERVER = ("model=v4_flash", "speculative=dspark", "pipeline=server")
PREFIX_LENS, ROW_LENS = [0, 3, 300], [6, 4, 5]
TREE = [-1, 0, 0, 1, 1, 2]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Mask and reader are known, as if they were installed."""
    added = [item for item in (plugin, READER) if item.name not in buffer_plugins]
    for item in added:
        register_plugin(item)
    yield
    for item in added:
        buffer_plugins.unregister(item.name)


def configured(*overrides: str, reader: bool = True, enabled: bool = True) -> Config:
    config = load_config(list(overrides))
    config.buffers[plugin.name] = plugin.spec()
    if reader:
        config.buffers[READER.name] = READER.spec(enabled=enabled)
    return config


@pytest.fixture(scope="module")
def dims() -> Dims:
    return plan(load_config([*SMALL, "speculative.num_draft_tokens=6"])).dims


def step_rows(dims: Dims, *, ragged: bool):
    key = (
        ragged_key(Mode.TARGET_VERIFY, requests=3, rows=18, width=6)
        if ragged
        else uniform_key(Mode.TARGET_VERIFY, requests=3, width=6)
    )
    return expand_rows(
        key,
        dims,
        request_slots=torch.tensor([2, 0, 1]),
        prefix_lens=torch.tensor(PREFIX_LENS),
        row_lens=torch.tensor(ROW_LENS),
        start_loc=torch.tensor([0, 6, 10]) if ragged else None,
    )


def test_a_tree_row_sees_itself_and_its_ancestors() -> None:
    assert tree_rows([-1, 0, 0, 2]) == [
        [True, False, False, False],
        [True, True, False, False],
        [True, False, True, False],
        [True, False, True, True],
    ]
    with pytest.raises(ValueError, match="row 1 has parent 1"):
        tree_rows([-1, 1])


@pytest.mark.parametrize("ragged", [False, True])
def test_a_masked_row_attends_as_a_dense_computation_does(dims: Dims, ragged: bool) -> None:
    torch.manual_seed(0)
    rows = step_rows(dims, ragged=ragged)
    pool, sinks = torch.randn(dims.ring_region_rows, dims.head_dim), torch.randn(dims.num_heads)
    q = torch.randn(rows.key.rows, dims.num_heads, dims.head_dim)
    mask = torch.tensor(tree_rows(TREE)).expand(3, 6, 6)
    indices = apply_verify_mask(window_indices(rows, dims, in_flight=False), mask, rows, dims)
    got = attend(q, pool, indices, sinks)
    for row in rows.valid.nonzero().flatten().tolist():
        request = int(rows.request[row])
        slot, start = int(rows.request_slots[request]), PREFIX_LENS[request]
        query = int(rows.position[row]) - start
        seen = [
            position
            for position in range(max(0, start + query - dims.sliding_window + 1), start + query + 1)
            if position < start or TREE_SEES[query][position - start]
        ]
        keys = pool[[slot * dims.window_ring_rows + position % dims.window_ring_rows for position in seen]]
        scores = torch.cat([q[row] @ keys.T * dims.head_dim**-0.5, sinks.unsqueeze(1)], dim=1)
        torch.testing.assert_close(got[row], scores.softmax(1)[:, :-1] @ keys, rtol=1e-4, atol=1e-5)


TREE_SEES = tree_rows(TREE)


@pytest.mark.parametrize("ragged", [False, True])
def test_a_chain_removes_nothing(dims: Dims, ragged: bool) -> None:
    rows = step_rows(dims, ragged=ragged)
    chain = torch.ones(6, 6, dtype=torch.bool).tril().expand(3, 6, 6)
    indices = window_indices(rows, dims, in_flight=False)
    assert torch.equal(apply_verify_mask(indices, chain, rows, dims), indices)


def test_compressed_entries_and_other_requests_stay(dims: Dims) -> None:
    rows = step_rows(dims, ragged=False)
    nothing = torch.zeros(3, 6, 6, dtype=torch.bool)
    entries = torch.full((rows.key.rows, 1), dims.entry_region_start)
    indices = torch.cat([window_indices(rows, dims, in_flight=False), entries], dim=1)
    masked = apply_verify_mask(indices, nothing, rows, dims)
    removed = torch.zeros(dims.ring_region_rows, dtype=torch.bool)
    removed[indices[masked != indices]] = True
    own = torch.zeros_like(removed)
    own[ring_rows(rows, dims.window_ring_rows)[rows.valid]] = True
    assert torch.equal(removed, own)
    assert (masked[:, -1] == dims.entry_region_start).all()


def test_it_exists_for_its_readers_only_and_takes_2304_bytes() -> None:
    unread = plan(configured(*SERVER, reader=False))
    assert unread.gates["verify_mask"].reason == "nobody reads it"
    assert unread.nbytes == plan(load_config(list(SERVER))).nbytes
    read = plan(configured(*SERVER))
    assert read.nbytes_by_provider["verify_mask"] == 64 * 6 * 6 == 2304
    longer = plan(configured(*SERVER, "pipeline.context_length=1048576"))
    assert longer.nbytes_by_provider["verify_mask"] == 2304
    assert "verify_mask" not in plan(configured(*SERVER, enabled=False)).nbytes_by_provider
    assert "verify_mask" not in plan(configured("speculative=off")).nbytes_by_provider


def test_a_captured_step_reads_the_tree_that_was_staged() -> None:
    with build(configured(*SMALL, "speculative.num_draft_tokens=6")) as assembly:
        assembly.prepare()
        slot = assembly.pages.join()
        batch = make_batch(
            assembly.dims,
            Mode.TARGET_VERIFY,
            slots=[slot],
            prefix_lens=[0],
            token_ids=[[32] * 6],
            page_updates=assembly.pages.extend(slot, 6),
        )
        assembly.replay(batch)
        seen = assembly.buffers["visible_rows"][:6].tolist()
    assert seen == [sum(row) for row in tree_rows(binary_tree(6))] == [1, 2, 2, 3, 3, 3]
