"""Fused kernels, run by Triton's interpreter, against the transformers library and the torch functions they replace."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="interprets kernels on the CPU")

from dspark_factory.attention.fused import selection
from dspark_factory.attention.fused.layer import FusedLayer
from dspark_factory.attention.fused.selection import select
from dspark_factory.attention.fused.step_tables import build_fused_tables
from dspark_factory.attention.indexer import top_entries
from dspark_factory.attention.rope import inverse_frequencies
from dspark_factory.attention.rows import expand_rows
from dspark_factory.attention.tables import Frequencies, build_tables
from dspark_factory.config import load_config
from dspark_factory.factory import build
from dspark_factory.pipeline.stages import Stage
from dspark_factory.planning import plan as planning
from dspark_factory.planning.dims import LayerType
from dspark_factory.planning.graph_keys import LayoutForm, Mode, ragged_key, uniform_key
from dspark_factory.planning.resolve import resolve_dims
from tests.geometry import DIMS
from tests.oracle import SHAPES, Driver, random_model, random_sequence

OVERRIDES = [
    "task=build",
    "model=checkpoint",
    "buffers.logits.enabled=true",
    "speculative.num_draft_tokens=6",
    "speculative.verify_layout=ragged",
    "pipeline.max_requests=3",
    "pipeline.capture_requests=[3]",
    "pipeline.bucket_policy=eager",
    "pipeline.context_length=320",
    "pipeline.page_tokens=128",
    "pipeline.extend_rows=200",
]


@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_model_on_fused_layers_agrees_with_the_transformers_library(shape, tmp_path, monkeypatch):
    monkeypatch.setattr(
        planning, "resolve_dims", lambda config: replace(resolve_dims(config), fused_kernels=True)
    )
    model = random_model(SHAPES[shape])
    model.save_pretrained(tmp_path)
    assembly = build(load_config([*OVERRIDES, f"model.checkpoint={tmp_path}"]))
    layers = [layer.self_attn._layer for layer in assembly.pipeline._live.model._model.model.layers]
    assert all(isinstance(layer, FusedLayer) for layer in layers)
    assembly.pipeline.clock.now = Stage.FREEZE  # nothing is captured: every batch runs eagerly
    driver = Driver(assembly)
    for seed in range(3):
        driver.join(random_sequence(model, 170, seed=seed))
    driver.extend({0: 100, 1: 3, 2: 61})
    for step in range(12):
        form = LayoutForm.RAGGED if step % 2 else LayoutForm.UNIFORM
        driver.verify({0: (6, 1 + step % 6), 1: (1 + step % 3, 1), 2: (4, 1 + step % 4)}, form, seed=step)
    driver.decode([0, 1, 2])
    driver.verify({2: (5, 5)}, LayoutForm.UNIFORM, seed=99)
    assert driver.compared > 250
    assembly.close()


@pytest.mark.parametrize("few", [selection.FEW, 8])
@pytest.mark.parametrize("levels", [1, 3, 1000])
@pytest.mark.parametrize("topk", [1, 5, 16])
def test_selection_is_the_exact_top_with_ties_to_the_earlier_entry(levels, topk, few, monkeypatch):
    """Few levels make ties at the threshold; negative and zero scores of both signs are among them."""
    monkeypatch.setattr(selection, "FEW", few)
    monkeypatch.setattr(selection, "MANY", 16)
    dims = replace(DIMS, index_topk=topk, context_length=4 * DIMS.page_tokens)
    most = dims.max_entries(LayerType.CSA)
    generator = torch.Generator().manual_seed(levels)
    lens = [1, dims.csa_ratio * topk, dims.context_length]
    key = uniform_key(Mode.DECODE, requests=3, width=1)
    rows = expand_rows(
        key,
        dims,
        request_slots=torch.tensor([2, 0, 1], dtype=torch.int32),
        prefix_lens=torch.tensor(lens, dtype=torch.int32) - 1,
    )
    pages = torch.randperm(dims.request_slots * dims.pages_per_request, generator=generator)
    page_table = pages.view(dims.request_slots, -1).int()
    frequencies = inverse_frequencies(dims.rope_head_dim, 1e4)
    tables = build_tables(rows, dims, Frequencies(main=frequencies, compress=frequencies), page_table)
    entries = tables.entries(LayerType.CSA)
    scores = torch.randint(levels, (3, most), generator=generator) - levels // 2
    scores = scores.float() * 0.25 * torch.randint(0, 2, (3, most), generator=generator).mul(2).sub(1)
    got = select(scores, page_table, tables, entries, dims)
    chosen = top_entries(scores, entries.counts, topk)
    listed = torch.where(chosen >= 0, entries.pool_rows.gather(1, chosen.clamp(min=0)), -1)
    expected = tables.sparse_join.join(tables.window, listed)
    assert torch.equal(got.rows, expected.rows)
    assert torch.equal(got.lens, expected.lens)


@pytest.mark.parametrize("layout", ["decode", "uniform", "ragged"])
def test_tables_of_a_step_are_those_of_the_torch_functions(layout):
    """With padding requests, a request without rows, one at the context limit and one at its beginning."""
    dims, requests = replace(DIMS, index_topk=3), 5
    slots = torch.tensor([2, 0, dims.scratch_slot, 1, dims.scratch_slot], dtype=torch.int32)
    width = 1 if layout == "decode" else 3
    prefixes = torch.tensor([0, dims.context_length - width, 0, 37, 0], dtype=torch.int32)
    lens = torch.tensor([2, 3, 0, 1, 0], dtype=torch.int32)
    mode = Mode.DECODE if layout == "decode" else Mode.TARGET_VERIFY
    if layout == "ragged":
        key = ragged_key(mode, requests=requests, rows=8, width=width)
    else:
        key = uniform_key(mode, requests=requests, width=width)
    given = {
        "request_slots": slots,
        "prefix_lens": prefixes,
        "row_lens": None if layout == "decode" else lens,
        "start_loc": (lens.cumsum(0) - lens).int() if layout == "ragged" else None,
    }
    page_table = (
        torch.randperm(dims.request_slots * dims.pages_per_request).view(dims.request_slots, -1).int()
    )
    frequencies = Frequencies(
        main=inverse_frequencies(dims.rope_head_dim, 1e4),
        compress=inverse_frequencies(dims.rope_head_dim, 1.6e5),
    )
    expected = build_tables(expand_rows(key, dims, **given), dims, frequencies, page_table)
    got = build_fused_tables(key, dims, frequencies, **given, page_table=page_table)
    for name in ("request", "slot", "position", "valid", "request_slots", "starts", "ends", "first_row"):
        assert torch.equal(getattr(got.rows, name), getattr(expected.rows, name)), name
    for name in ("kv_write_rows", "dense_rows", "offsets"):
        assert torch.equal(getattr(got, name), getattr(expected, name)), name
    for own, other in (
        (got.sliding, expected.sliding),
        (got.heavily_compressed, expected.heavily_compressed),
    ):
        assert torch.equal(own.rows, other.rows)
        assert torch.equal(own.lens, other.lens)
    for kind in (LayerType.CSA, LayerType.HCA):
        for name in ("counts", "lens"):
            assert torch.equal(getattr(got.entries(kind), name), getattr(expected.entries(kind), name)), name
