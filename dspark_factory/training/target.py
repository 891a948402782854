"""Train a small DeepSeek-V4 target with the ``transformers`` model and save it as a checkpoint folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from dspark_factory.training.corpus import Corpus, draw_batch, held_out_batches
from dspark_factory.training.tokenizer import byte_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """Everything that decides the result besides the corpus; recorded beside the checkpoint."""

    steps: int
    batch_size: int
    sequence_length: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """State of the run after a step, for progress displays."""

    step: int
    steps: int
    loss: float
    seconds: float


def build_model(config: DeepseekV4Config, *, seed: int, device: torch.device) -> DeepseekV4ForCausalLM:
    """Freshly initialised model; hash-routed layers get a fixed random token → expert table."""
    torch.manual_seed(seed)
    model: Any = DeepseekV4ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    for layer in model.model.layers:
        if layer.mlp.is_hash:
            scores = torch.rand(config.vocab_size, config.n_routed_experts, generator=generator)
            layer.mlp.gate.tid2eid.copy_(scores.topk(config.num_experts_per_tok, dim=-1).indices)
    model.set_experts_implementation("grouped_mm" if device.type == "cuda" else "eager")
    return model.to(device)


def learning_rate_at(step: int, settings: TrainingSettings) -> float:
    """Linear warm-up, then cosine to a twentieth of the peak."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    done = (step - settings.warmup_steps) / max(settings.steps - settings.warmup_steps, 1)
    return settings.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def train(
    model: DeepseekV4ForCausalLM,
    corpus: Corpus,
    settings: TrainingSettings,
    *,
    on_step: Callable[[TrainingProgress], None],
) -> dict[str, float]:
    """Train in place; returns the final losses in nats per byte and the seconds it took."""
    device = model.device
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=settings.weight_decay
    )
    generator = torch.Generator().manual_seed(settings.seed)
    started = time.perf_counter()
    model.train()
    recent: list[torch.Tensor] = []
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, settings)
        batch = draw_batch(
            corpus.train,
            batch_size=settings.batch_size,
            sequence_length=settings.sequence_length,
            generator=generator,
        ).to(device, non_blocking=True)
        loss = _loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent = [*recent[-49:], loss.detach()]
        if step % 25 == 24 or step + 1 == settings.steps:
            seconds = time.perf_counter() - started
            on_step(
                TrainingProgress(
                    step=step + 1, steps=settings.steps, loss=float(loss.detach()), seconds=seconds
                )
            )
    return {
        "train_loss_nats_per_byte": float(torch.stack(recent).mean()),
        "held_out_loss_nats_per_byte": held_out_loss(model, corpus, settings),
        "training_seconds": time.perf_counter() - started,
    }


def _loss(model: DeepseekV4ForCausalLM, batch: torch.Tensor) -> torch.Tensor:
    autocast = torch.autocast("cuda", torch.bfloat16) if batch.is_cuda else nullcontext()
    with autocast:
        logits = model(input_ids=batch, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: DeepseekV4ForCausalLM, corpus: Corpus, settings: TrainingSettings) -> float:
    """Mean cross-entropy on the held-out files, nats per byte, over at most 64 batches."""
    model.eval()
    batches = held_out_batches(
        corpus.held_out, batch_size=settings.batch_size, sequence_length=settings.sequence_length
    )
    losses = [_loss(model, batch.to(model.device)) for batch in batches[:64]]
    return float(torch.stack(losses).mean())


def save(
    model: DeepseekV4ForCausalLM,
    folder: Path,
    *,
    settings: TrainingSettings,
    corpus: Corpus,
    corpus_name: str,
    losses: dict[str, float],
) -> dict[str, Any]:
    """Write config, bf16 safetensors, tokenizer and ``training.json``; returns the training record."""
    folder.mkdir(parents=True, exist_ok=True)
    keep_fp32 = model._keep_in_fp32_modules_strict or []
    for name, parameter in model.named_parameters():
        if not any(part in keep_fp32 for part in name.split(".")):
            parameter.data = parameter.data.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    record = {
        "corpus": corpus_name,
        "corpus_files": corpus.num_files,
        "corpus_bytes": len(corpus.train) + len(corpus.held_out),
        "settings": asdict(settings),
        **losses,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "hardware": torch.cuda.get_device_name() if model.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    (folder / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    return record
