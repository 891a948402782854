"""One layer in the modes that the model oracle does not reach: draft blocks, and what padding may touch."""

from __future__ import annotations

import pytest
import torch

from dspark_factory.attention.layer import AttentionLayer, LayerInputs
from dspark_factory.attention.reference import ReferenceBackend
from dspark_factory.attention.rope import inverse_frequencies, rotate, rotations
from dspark_factory.attention.rows import expand_rows
from dspark_factory.attention.tables import Frequencies, build_tables
from dspark_factory.kv.pools import PoolKv
from dspark_factory.planning.dims import LayerType
from dspark_factory.planning.graph_keys import Mode, ragged_key, uniform_key
from tests.geometry import DIMS

FREQUENCIES = Frequencies(main=inverse_frequencies(8, 1e4), compress=inverse_frequencies(8, 1.6e5))


def sliding_layer() -> AttentionLayer:
    pool = torch.zeros(DIMS.pool_rows(LayerType.SLIDING), DIMS.head_dim)
    sinks = torch.linspace(-1, 1, DIMS.num_heads)
    return AttentionLayer(LayerType.SLIDING, kv=PoolKv(pool), sinks=sinks, backend=ReferenceBackend())


def run(layer, key, slots, prefixes, lens, q, kv, starts=None):
    def int32(values):
        return None if values is None else torch.tensor(values, dtype=torch.int32)

    rows = expand_rows(
        key,
        DIMS,
        request_slots=torch.tensor(slots, dtype=torch.int32),
        prefix_lens=torch.tensor(prefixes, dtype=torch.int32),
        row_lens=int32(lens),
        start_loc=int32(starts),
    )
    page_table = torch.zeros(DIMS.request_slots, DIMS.pages_per_request, dtype=torch.int32)
    tables = build_tables(rows, DIMS, FREQUENCIES, page_table)
    return layer.forward(LayerInputs(q=q.clone(), kv=kv.clone()), tables)


def attention(q, keys, query_position, key_positions, sinks):
    """The formula written out in fp64 for one row."""
    turn = rotations(key_positions, FREQUENCIES.main)
    keys = rotate(keys.clone(), turn).double()
    own = rotations(query_position, FREQUENCIES.main)
    query = rotate(q.clone(), own).double()
    logits = query @ keys.T * DIMS.head_dim**-0.5
    weights = logits.exp() / (logits.exp().sum(1, keepdim=True) + sinks.double().exp().unsqueeze(1))
    return rotate((weights @ keys).float(), own.conj())


@pytest.mark.parametrize("prefix", [0, 1, 5, 8, 30])
def test_a_draft_block_attends_to_its_context_window_and_to_all_of_itself(prefix):
    """Non-causal inside the block, nothing of the block is kept, the anchor's position is not in the context."""
    generator = torch.Generator().manual_seed(prefix)
    layer, block = sliding_layer(), 4
    context = torch.randn(prefix, DIMS.head_dim, generator=generator)
    if prefix:
        key = ragged_key(Mode.EXTEND, requests=1, rows=prefix, width=prefix)
        run(layer, key, [2], [0], [prefix], torch.zeros(prefix, DIMS.num_heads, DIMS.head_dim), context, [0])
    ring = layer.pool[: DIMS.ring_region_rows].clone()
    q = torch.randn(block, DIMS.num_heads, DIMS.head_dim, generator=generator)
    kv = torch.randn(block, DIMS.head_dim, generator=generator)
    key = uniform_key(Mode.DRAFT_BLOCK, requests=1, width=block)
    out = run(layer, key, [2], [prefix], [block], q, kv)
    first = max(prefix - DIMS.sliding_window, 0)
    keys = torch.cat([context[first:], kv])
    positions = torch.cat([torch.arange(first, prefix), torch.arange(prefix, prefix + block)])
    for row in range(block):
        expected = attention(q[row], keys, torch.tensor(prefix + row), positions, layer.sinks)
        torch.testing.assert_close(out[row], expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(layer.pool[: DIMS.ring_region_rows], ring)


def test_padding_rows_write_to_the_scratch_slot_and_nowhere_else():
    """Field report 34: what has no place is skipped; it never wraps to the last row of somebody's cache."""
    layer = sliding_layer()
    key = uniform_key(Mode.TARGET_VERIFY, requests=2, width=3)
    kv = torch.randn(6, DIMS.head_dim)
    q = torch.randn(6, DIMS.num_heads, DIMS.head_dim)
    out = run(layer, key, [1, DIMS.scratch_slot], [4, 0], [2, 0], q, kv)
    changed = layer.pool.abs().sum(1).nonzero().flatten().tolist()
    ring = DIMS.window_ring_rows
    scratch = DIMS.scratch_slot * ring
    assert changed == [ring + 4, ring + 5, scratch]
    assert bool(out.isfinite().all())
