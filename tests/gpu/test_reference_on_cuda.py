"""The reference backend on a CUDA device: real graphs, the same truth."""

from __future__ import annotations

import gc

import pytest
import torch

from dspark_factory.config import load_config
from dspark_factory.engine.decoder import Decoder
from dspark_factory.errors import CaptureError
from dspark_factory.factory import build
from dspark_factory.planning.graph_keys import LayoutForm
from tests.lazy_provider import LAZY
from tests.oracle import MIXED, Driver, assembly_for, random_model, random_sequence

pytestmark = pytest.mark.gpu
CUDA = ["device=cuda", "device.dtype=float32", "device.kv_dtype=float32"]
PROMPTS = [list(b"def read_config(path):\n    with open(path) as file:\n"), list(b"import os\n" * 15), [120]]


@pytest.mark.parametrize("layout", ["uniform", "ragged"])
def test_speculative_decoding_is_lossless_through_captured_graphs(layout):
    config = load_config([*CUDA, f"speculative.verify_layout={layout}", "workload.max_new_tokens=100"])
    with build(config) as assembly:
        assembly.prepare()
        assert len(assembly.pipeline.graphs) == len(assembly.plan.graph_keys)
        plain = Decoder(assembly, speculative=False).generate(PROMPTS)
        speculative = Decoder(assembly, speculative=True).generate(PROMPTS)
        assert speculative.outputs == plain.outputs
        assert speculative.steps < plain.steps
        assembly.pipeline.verify_addresses()


def test_logits_of_captured_graphs_agree_with_the_transformers_library(tmp_path):
    torch.backends.cuda.matmul.allow_tf32 = False
    model = random_model(MIXED)
    sequences = [random_sequence(model, 110, seed=seed) for seed in range(3)]
    overrides = [
        *CUDA,
        "speculative.verify_layout=ragged",
        "pipeline.context_length=128",
        "pipeline.page_tokens=32",
        "pipeline.extend_rows=50",
    ]
    assembly = assembly_for(model, tmp_path, overrides)
    for sequence in sequences:
        sequence.expected = sequence.expected.cuda()
    driver = Driver(assembly)
    for sequence in sequences:
        driver.join(sequence)
    driver.extend({0: 20, 1: 3, 2: 11})
    for step in range(10):
        form = LayoutForm.RAGGED if step % 2 else LayoutForm.UNIFORM
        driver.verify({0: (6, 1 + step % 6), 1: (1, 1), 2: (4, 1 + step % 4)}, form, seed=step)
    driver.decode([0, 1, 2])
    assert driver.compared > 80
    assembly.close()


def test_sampling_inside_a_graph_reads_fresh_numbers_every_step():
    config = load_config([*CUDA, "workload.temperature=0.9", "workload.max_new_tokens=60"])
    with build(config) as assembly:
        assembly.prepare()
        first = Decoder(assembly, speculative=True).generate(PROMPTS).outputs
        assert Decoder(assembly, speculative=True).generate(PROMPTS).outputs == first
        assert len({tuple(output) for output in first}) == len(PROMPTS)


def test_a_lazy_provider_is_named_before_capture_and_the_next_build_works(register):
    register(LAZY)
    config = load_config([*CUDA, "task=build", "+schema/buffers@buffers.lazy_verify=lazy_verify"])
    with build(config) as assembly, pytest.raises(CaptureError, match="lazy_verify"):
        assembly.prepare()
    torch.randn(3, device="cuda")
    with build(load_config([*CUDA, "task=build"])) as assembly:
        assembly.prepare()
        assert assembly.pipeline.graphs


def test_memory_stays_flat_over_replays_and_comes_back_on_close():
    config = load_config([*CUDA, "workload.max_new_tokens=120"])
    with build(config) as assembly:  # libraries allocate their workspaces once
        assembly.prepare()
    del assembly
    gc.collect()
    before = torch.cuda.memory_allocated()
    with build(config) as assembly:
        assembly.prepare()
        decoder = Decoder(assembly, speculative=True)
        decoder.generate(PROMPTS)
        allocated = torch.cuda.memory_allocated()
        for _ in range(5):
            Decoder(assembly, speculative=True).generate(PROMPTS)
        assert torch.cuda.memory_allocated() == allocated
    del assembly, decoder
    gc.collect()
    assert torch.cuda.memory_allocated() <= before
