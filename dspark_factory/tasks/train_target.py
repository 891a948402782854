"""Train a small target from a text folder: how the shipped checkpoint was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import DeepseekV4Config

from dspark_factory.config.schema import Config, ModelSpec, TrainTargetTask
from dspark_factory.errors import TaskError
from dspark_factory.factory import resolve_device
from dspark_factory.results import RecordBuilder
from dspark_factory.tasks.progress import progress
from dspark_factory.training.corpus import read_corpus, standard_library
from dspark_factory.training.target import TrainingProgress, TrainingSettings, build_model, save, train
from dspark_factory.training.tokenizer import END_TOKEN_ID


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Train the configured dimensions from scratch and save a checkpoint folder.

    Raises:
        TaskError: the vocabulary is not the byte vocabulary, the corpus is too small, or there is no such device.
    """
    task = config.task
    assert isinstance(task, TrainTargetTask)
    device = resolve_device(config)
    folder = Path(task.text_folder) if task.text_folder else standard_library()
    corpus = read_corpus(folder, end_token=END_TOKEN_ID)
    names = {item.name for item in fields(TrainingSettings)}
    settings = TrainingSettings(**{name: getattr(task, name) for name in names})
    model = build_model(_library_config(config.model), seed=settings.seed, device=device)
    with progress("training", settings.steps, "steps") as advance, record.stage("train"):
        losses = train(model, corpus, settings, on_step=_reporter(advance, console))
    trained = save(
        model,
        Path(task.checkpoint_out),
        settings=settings,
        corpus=corpus,
        corpus_name=str(folder) if task.text_folder else "CPython standard library",
        losses=losses,
    )
    record.measurements["training"] = trained
    console.print(
        f"held-out loss {losses['held_out_loss_nats_per_byte']:.3f} nats per byte after {settings.steps} steps; "
        f"saved to {task.checkpoint_out}; use it with model=checkpoint model.checkpoint={task.checkpoint_out}"
    )


def _reporter(advance: Callable[[int], None], console: Console) -> Callable[[TrainingProgress], None]:
    done = 0

    def report(state: TrainingProgress) -> None:
        nonlocal done
        advance(state.step - done)
        done = state.step
        if state.step % 100 == 0 or state.step == state.steps:
            console.print(f"step {state.step}/{state.steps}  loss {state.loss:.3f}  {state.seconds:.0f} s")

    return report


def _library_config(model: ModelSpec) -> DeepseekV4Config:
    if model.vocab_size != END_TOKEN_ID + 1:
        raise TaskError(
            f"training uses the byte vocabulary of {END_TOKEN_ID + 1} tokens, model {model.name} has "
            f"{model.vocab_size}; set model.checkpoint=null model.vocab_size={END_TOKEN_ID + 1}"
        )
    assert model.layer_types is not None
    layers = len(model.layer_types)
    hashed = min(model.num_hash_layers or 0, layers)
    # Older names, such as qk_rope_head_dim, are accepted by the class without being declared.
    declare: Any = DeepseekV4Config
    return declare(
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        moe_intermediate_size=model.moe_intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=model.num_attention_heads,
        head_dim=model.head_dim,
        q_lora_rank=model.q_lora_rank,
        qk_rope_head_dim=model.qk_rope_head_dim,
        num_experts_per_tok=model.num_experts_per_tok,
        n_routed_experts=model.n_routed_experts,
        n_shared_experts=model.n_shared_experts,
        routed_scaling_factor=model.routed_scaling_factor,
        max_position_embeddings=model.max_position_embeddings,
        layer_types=[kind.value for kind in model.layer_types],
        mlp_layer_types=["hash_moe"] * hashed + ["moe"] * (layers - hashed),
        compress_rates={
            "compressed_sparse_attention": model.csa_ratio,
            "heavily_compressed_attention": model.hca_ratio,
        },
        rope_theta=model.rope_theta,
        compress_rope_theta=model.compress_rope_theta,
        hc_mult=model.hc_mult,
        hc_sinkhorn_iters=model.hc_sinkhorn_iters,
        sliding_window=model.sliding_window,
        o_groups=model.o_groups,
        o_lora_rank=model.o_lora_rank,
        index_n_heads=model.index_n_heads,
        index_head_dim=model.index_head_dim,
        index_topk=model.index_topk,
        num_nextn_predict_layers=0,
        bos_token_id=END_TOKEN_ID,
        eos_token_id=END_TOKEN_ID,
        pad_token_id=END_TOKEN_ID,
    )
