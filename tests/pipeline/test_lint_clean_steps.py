"""The capture lint is silent on realistic clean steps and on what transformers offers for captures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4ForCausalLM

from dspark_factory.pipeline.lint import Finding, lint_step
from dspark_factory.pipeline.recorder import provider_scope


def make_clean_step(weights: dict[str, Tensor], arena: dict[str, Tensor]) -> Callable[[], None]:
    """One decode-like layer: norm, linear, RoPE, KV write and gather, softmax, top-k routing."""

    def rope(x: Tensor) -> Tensor:
        angle = arena["positions"][:, None].float() * weights["inverse_frequency"]
        cos, sin = angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)
        rotated = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
        return x * cos + rotated * sin

    def step() -> None:
        with provider_scope("attention"), torch.autocast("cpu", torch.bfloat16, enabled=True):
            h = F.rms_norm(arena["x"], (16,), weights["norm"], 1e-6)
            q, kv = F.linear(h, weights["qkv"]).float().split([16, 16], dim=-1)
            q, kv = rope(q), rope(kv)
            arena["pool"].index_put_((arena["slots"],), kv)
            visible = arena["indices"] >= 0
            keys = arena["pool"][arena["indices"].clamp(min=0)]
            scores = torch.einsum("rd,rkd->rk", q, keys).masked_fill(~visible, float("-inf"))
            attended = torch.einsum("rk,rkd->rd", scores.softmax(-1).nan_to_num(0.0), keys)
        with provider_scope("router"):
            top = (attended.float() @ weights["gate"]).sigmoid().topk(2, dim=-1)
            gates = top.values / top.values.sum(-1, keepdim=True)
            experts = torch.gather(
                attended[:, None].expand(-1, 4, -1), 1, top.indices[..., None].expand(-1, -1, 16)
            )
            arena["x"].add_((experts * gates[..., None]).sum(1))
            arena["tokens"].copy_(arena["x"].argmax(-1))

    return step


def test_a_realistic_clean_step_gives_no_finding() -> None:
    block = torch.zeros(4096)
    arena = {
        "x": block[:64].view(4, 16), "pool": block[128:640].view(32, 16), "tokens": torch.zeros(4).long(),
        "positions": torch.arange(4), "slots": torch.arange(4), "indices": torch.zeros(4, 8).long(),
    }  # fmt: skip
    weights = {
        "norm": torch.ones(16), "qkv": torch.randn(32, 16), "gate": torch.randn(16, 4),
        "inverse_frequency": torch.rand(8),
    }  # fmt: skip

    def stage(seed: int) -> Callable[[], None]:
        def write() -> None:
            torch.manual_seed(seed)
            arena["x"].normal_()
            arena["slots"].copy_(torch.randperm(32)[:4])
            arena["positions"].random_(0, 100)
            arena["indices"].random_(-1, 32)

        return write

    step = make_clean_step(weights, arena)
    known = [block, *arena.values(), *weights.values()]
    assert lint_step(step, [stage(0), stage(1), stage(2)], known=known, watched=arena) == []


@pytest.fixture(scope="module")
def model() -> DeepseekV4ForCausalLM:
    config = DeepseekV4Config(
        vocab_size=64, hidden_size=32, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, head_dim=16, q_lora_rank=8,
        o_lora_rank=8, o_groups=1, index_n_heads=2, index_head_dim=8, index_topk=4, hc_mult=2,
        layer_types=["sliding_attention", "sliding_attention"], mlp_layer_types=["hash_moe", "moe"],
    )  # fmt: skip
    torch.manual_seed(0)
    return DeepseekV4ForCausalLM(config).eval()


def lint_deepseek_v4(model: DeepseekV4ForCausalLM, experts: str) -> list[Finding]:
    """The parts of a DeepSeek-V4 layer that are used as they are: hyper-connections, norm and MoE."""
    model.set_experts_implementation(experts)
    streams, out = torch.zeros(1, 6, 2, 32), torch.zeros(1, 6, 2, 32)
    input_ids = torch.zeros(1, 6).long()

    def step() -> None:
        h = streams
        for layer in model.model.layers:
            with provider_scope("moe"):
                post, comb, collapsed = layer.ffn_hc(h)
                mixed = layer.mlp(layer.post_attention_layernorm(collapsed), input_ids=input_ids)
                h = post.unsqueeze(-1) * mixed.unsqueeze(-2) + comb.transpose(-1, -2) @ h
        out.copy_(h)

    def stage() -> None:
        streams.normal_()
        input_ids.random_(0, 64)

    known = [streams, out, input_ids, *model.parameters(), *model.buffers()]
    return lint_step(step, [stage, stage], known=known)


@pytest.mark.parametrize("experts", ["grouped_mm", "batched_mm"])
def test_the_capture_safe_experts_of_transformers_give_no_finding(
    model: DeepseekV4ForCausalLM, experts: str
) -> None:
    assert lint_deepseek_v4(model, experts) == []


def test_the_eager_experts_of_transformers_are_named(model: DeepseekV4ForCausalLM) -> None:
    findings = lint_deepseek_v4(model, "eager")
    assert {"host_sync", "data_dependent_shape"} <= {finding.kind for finding in findings}
    syncs = [finding for finding in findings if finding.kind == "host_sync"]
    assert all(finding.provider == "moe" and "modeling_deepseek_v4.py:" in finding.where for finding in syncs)
