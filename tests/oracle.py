"""The transformers library's own DeepSeek-V4 as the truth: random checkpoints, and a driver that compares."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from dspark_factory.config import load_config
from dspark_factory.factory import Assembly, build
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.graph_keys import LayoutForm, Mode

SLIDING, CSA, HCA = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
TOLERANCE = 1e-4

MIXED = {
    "layer_types": [SLIDING, CSA, HCA, CSA],
    "sliding_window": 8,
    "hca": 16,
    "index_topk": 3,
    "num_attention_heads": 4,
    "head_dim": 16,
    "qk_rope_head_dim": 8,
}
WIDE = {
    "layer_types": [HCA, CSA, HCA],
    "sliding_window": 5,
    "hca": 8,
    "index_topk": 64,
    "num_attention_heads": 2,
    "head_dim": 32,
    "qk_rope_head_dim": 4,
    "yarn": True,
}
SLIDING_ONLY = {
    "layer_types": [SLIDING, SLIDING],
    "sliding_window": 4,
    "hca": 8,
    "index_topk": 2,
    "num_attention_heads": 4,
    "head_dim": 8,
    "qk_rope_head_dim": 8,
}
REAL_RATIOS = {
    "layer_types": [CSA, HCA],
    "sliding_window": 32,
    "hca": 128,
    "index_topk": 8,
    "num_attention_heads": 4,
    "head_dim": 16,
    "qk_rope_head_dim": 8,
}
SHAPES = {"mixed": MIXED, "wide": WIDE, "sliding_only": SLIDING_ONLY, "real_ratios": REAL_RATIOS}


def random_model(shape: dict, *, seed: int = 0) -> DeepseekV4ForCausalLM:
    """A random fp32 model whose indexer scores do not tie: sixteen heads, and no padding token embedded as zero."""
    torch.manual_seed(seed)
    layers = len(shape["layer_types"])
    rope = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }
    config = DeepseekV4Config(
        vocab_size=61,
        hidden_size=48,
        moe_intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=shape["num_attention_heads"],
        head_dim=shape["head_dim"],
        qk_rope_head_dim=shape["qk_rope_head_dim"],
        q_lora_rank=24,
        n_routed_experts=4,
        num_experts_per_tok=2,
        layer_types=shape["layer_types"],
        mlp_layer_types=["hash_moe"] + ["moe"] * (layers - 1),
        compress_rates={CSA: 4, HCA: shape["hca"]},
        sliding_window=shape["sliding_window"],
        o_groups=2,
        o_lora_rank=12,
        index_n_heads=16,
        index_head_dim=16,
        index_topk=shape["index_topk"],
        hc_mult=2,
        hc_sinkhorn_iters=3,
        max_position_embeddings=1024,
        rope_parameters=rope if shape.get("yarn") else None,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    model = DeepseekV4ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "position_bias" in name or "sinks" in name:
                parameter.normal_()
        for layer in model.model.layers:
            if layer.mlp.is_hash:
                layer.mlp.gate.tid2eid.copy_(torch.rand(config.vocab_size, 4).topk(2).indices)
    return model


@torch.no_grad()
def oracle_logits(model: DeepseekV4ForCausalLM, tokens: list[int]) -> torch.Tensor:
    """``[tokens, vocabulary]`` of one full forward without a cache."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def assembly_for(model: DeepseekV4ForCausalLM, folder: Path, overrides: list[str]) -> Assembly:
    """A prepared assembly of the saved model with logits on."""
    model.save_pretrained(folder)
    config = load_config(
        [
            "task=build",
            "model=checkpoint",
            f"model.checkpoint={folder}",
            "buffers.logits.enabled=true",
            *overrides,
        ]
    )
    assembly = build(config)
    assembly.prepare()
    return assembly


@dataclass
class Sequence:
    """A sequence that is fed to the assembly, with the oracle's logits at every position."""

    tokens: list[int]
    expected: torch.Tensor
    slot: int = -1
    committed: int = 0

    @property
    def left(self) -> int:
        return len(self.tokens) - self.committed


@dataclass
class Driver:
    """Feeds known sequences through any schedule of steps and compares every logit row that is defined."""

    assembly: Assembly
    active: list[Sequence] = field(default_factory=list)
    worst: float = 0.0
    compared: int = 0

    def join(self, sequence: Sequence) -> None:
        sequence.slot, sequence.committed = self.assembly.pages.join(), 0
        self.active.append(sequence)

    def leave(self, sequence: Sequence) -> None:
        self.assembly.pages.leave(sequence.slot)
        self.active.remove(sequence)

    def extend(self, chunks: dict[int, int]) -> None:
        """Feed the next ``chunks[i]`` tokens of active sequence ``i`` in one extend step."""
        self._run(Mode.EXTEND, {i: (n, n) for i, n in chunks.items()}, None, random.Random(0))

    def decode(self, members: list[int]) -> None:
        self._run(Mode.DECODE, dict.fromkeys(members, (1, 1)), None, random.Random(0))

    def verify(
        self, plan: dict[int, tuple[int, int]], form: LayoutForm, *, seed: int = 0, width: int | None = None
    ) -> None:
        """Verify ``(rows, accepted)`` of sequences: rows behind the accepted ones carry wrong drafts."""
        self._run(Mode.TARGET_VERIFY, plan, form, random.Random(seed), width=width)

    def _run(
        self,
        mode: Mode,
        plan: dict[int, tuple[int, int]],
        form: LayoutForm | None,
        noise: random.Random,
        width: int | None = None,
    ) -> None:
        dims = self.assembly.dims
        members = [self.active[i] for i in plan]
        rows = []
        for sequence, (count, accepted) in zip(members, plan.values(), strict=True):
            own = sequence.tokens[sequence.committed : sequence.committed + accepted]
            wrong = [noise.randrange(dims.vocab_size) for _ in range(count - accepted)]
            rows.append(own + wrong)
        updates = [
            update
            for sequence, own in zip(members, rows, strict=True)
            for update in self.assembly.pages.extend(sequence.slot, sequence.committed + len(own))
        ]
        batch = make_batch(
            dims,
            mode,
            slots=[sequence.slot for sequence in members],
            prefix_lens=[sequence.committed for sequence in members],
            token_ids=rows,
            page_updates=updates,
            form=form,
            width=width,
        )
        result = self.assembly.replay(batch)
        assert result.logits is not None
        first = 0
        for index, (sequence, (count, accepted)) in enumerate(zip(members, plan.values(), strict=True)):
            start = index * result.key.width if result.key.form is LayoutForm.UNIFORM else first
            got = result.logits[start : start + accepted]
            self._compare(got, sequence.expected[sequence.committed : sequence.committed + accepted])
            sequence.committed += accepted
            first += count

    def _compare(self, got: torch.Tensor, expected: torch.Tensor) -> None:
        error = (got - expected).norm(dim=-1) / expected.norm(dim=-1)
        self.worst = max(self.worst, float(error.max()))
        self.compared += len(got)
        assert self.worst < TOLERANCE, f"relative error {self.worst:.2e}"


def random_sequence(model: DeepseekV4ForCausalLM, length: int, seed: int) -> Sequence:
    tokens = [random.Random(seed * 7919 + i).randrange(61) for i in range(length)]
    return Sequence(tokens=tokens, expected=oracle_logits(model, tokens))
