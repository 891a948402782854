"""The flashinfer backend on the card: the contract, every kernel against fp64, and whole decodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dspark_factory import build, load_config
from dspark_factory.attention import FLASHINFER
from dspark_factory.attention.spec import AttentionKernel, FlashInferBackendSpec
from dspark_factory.engine.decoder import Decoder
from dspark_factory.testing import BackendConformance

pytestmark = pytest.mark.gpu
SMALL = ["device=cuda", "workload.max_new_tokens=64"]
PROMPTS = [list(b"def read_config(path):\n    with open(path) as file:\n"), list(b"import os\n" * 15), [120]]


class TestEveryKernelIsTimed(BackendConformance):
    plugin = FLASHINFER
    specs = (FlashInferBackendSpec(),)
    overrides = ("device=cuda",)


class TestEachKernelAlone(BackendConformance):
    plugin = FLASHINFER
    specs = (
        FlashInferBackendSpec(kernels=[AttentionKernel.fa3]),
        FlashInferBackendSpec(kernels=[AttentionKernel.fa2]),
        FlashInferBackendSpec(batch_invariant=True),
    )
    overrides = ("device=cuda",)


def decoded(*overrides: str) -> tuple[list[list[int]], list[list[int]]]:
    with build(load_config([*SMALL, *overrides])) as assembly:
        assembly.prepare()
        plain = Decoder(assembly, speculative=False).generate(PROMPTS)
        speculative = Decoder(assembly, speculative=True).generate(PROMPTS)
        assembly.pipeline.verify_addresses()
        return plain.outputs, speculative.outputs


@pytest.mark.parametrize("layout", ["uniform", "ragged"])
def test_greedy_tokens_equal_the_reference_backend_and_speculation_changes_none(layout):
    own = decoded("backend=flashinfer", f"speculative.verify_layout={layout}")
    reference = decoded("backend=reference", f"speculative.verify_layout={layout}")
    assert own[0] == own[1] == reference[0] == reference[1]


def test_greedy_tokens_are_the_same_with_fused_kernels_and_with_the_torch_functions():
    assert decoded("backend=flashinfer") == decoded("backend=flashinfer", "device.fused_kernels=false")


def test_autotune_says_which_kernel_it_chose_for_every_captured_shape():
    with build(load_config([*SMALL, "backend=flashinfer"])) as assembly:
        assert assembly.tuned == {}
        assembly.prepare()
        rows = {key.rows for key in assembly.plan.graph_keys}
        assert {int(name.split()[0]) for name in assembly.tuned} == rows
        for choice in assembly.tuned.values():
            assert choice["microseconds"][choice["kernel"]] == min(choice["microseconds"].values())


@pytest.mark.parametrize("head_dim", [128, 256, 512])
@pytest.mark.parametrize("heads", [8, 64, 128])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_cluster_kernel_agrees_with_fp64_on_lists_of_every_length(head_dim, heads, size):
    from dspark_factory.api import KeyLists
    from dspark_factory.attention.flashinfer.kernels import ClusterKernel

    generator = torch.Generator(device="cuda").manual_seed(size)
    options = {"device": "cuda", "generator": generator}
    lens = torch.tensor(
        [0, 1, 31, 32, 33, 63, 127, 128, 160, 161, 255, 640], device="cuda", dtype=torch.int32
    )
    pool = torch.randn(5000, head_dim, dtype=torch.bfloat16, **options)
    q = torch.randn(len(lens), heads, head_dim, dtype=torch.bfloat16, **options)
    sinks = torch.randn(heads, **options)
    rows = torch.randint(5000, (len(lens), 640), **options)
    live = torch.arange(640, device="cuda") < lens.unsqueeze(1)
    keys = KeyLists(rows=torch.where(live, rows, -1).int(), lens=lens)
    out = torch.full_like(q, float("nan"))
    ClusterKernel(size).run(q, pool, keys, sinks, out)
    values = pool[rows].double()
    scores = torch.einsum("rhd,rkd->rhk", q.double(), values) * head_dim**-0.5
    scores = scores.masked_fill(~live.unsqueeze(1), float("-inf"))
    weights = torch.cat([scores, sinks.double().view(1, -1, 1).expand(len(lens), -1, 1)], dim=-1).softmax(-1)
    expected = torch.einsum("rhk,rkd->rhd", weights[..., :-1], values)
    assert not out[0].any()
    # bfloat16 output: 2**-9 of the value, and what the weights lose in bfloat16.
    torch.testing.assert_close(out.double(), expected, rtol=6e-3, atol=3e-3)


def test_a_machine_without_the_packages_is_refused_before_memory_is_touched(monkeypatch):
    from dspark_factory.attention.flashinfer import machine
    from dspark_factory.errors import ConfigError

    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    before = torch.cuda.memory_allocated()
    with pytest.raises(ConfigError, match=r"flashinfer is missing; pip install 'dspark-factory\[cuda\]'"):
        build(load_config([*SMALL, "backend=flashinfer"]))
    assert torch.cuda.memory_allocated() == before


def test_shapes_outside_the_plan_are_served_too():
    spec = replace(FlashInferBackendSpec(), kernels=[AttentionKernel.fa2])
    config = load_config([*SMALL, "backend=flashinfer", "pipeline.bucket_policy=eager"])
    config.backend = spec
    with build(config) as assembly:
        assembly.prepare()
        assert len(Decoder(assembly, speculative=True).generate(PROMPTS * 2).outputs) == 6
