"""The shipped checkpoint on real text, against the transformers library, in every mode."""

from __future__ import annotations

import inspect
import json
from itertools import cycle

import pytest
import torch
from safetensors import safe_open
from transformers import AutoTokenizer, DeepseekV4ForCausalLM

from dspark_factory.config import load_config, schema
from dspark_factory.config.model_shape import checkpoint_folder
from dspark_factory.factory import build
from dspark_factory.planning.graph_keys import LayoutForm
from tests.oracle import Driver, Sequence, oracle_logits

FOLDER = checkpoint_folder("tiny")


@pytest.fixture(scope="module")
def library():
    return DeepseekV4ForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def sequences(library):
    tokens = AutoTokenizer.from_pretrained(FOLDER)(inspect.getsource(schema)[:1500]).input_ids
    return [
        Sequence(tokens=part, expected=oracle_logits(library, part))
        for part in (tokens[:700], tokens[700:1150])
    ]


@pytest.fixture(scope="module")
def assembly():
    overrides = [
        "buffers.logits.enabled=true",
        "speculative.verify_layout=ragged",
        "pipeline.context_length=1024",
        "pipeline.capture_requests=[1,2]",
    ]
    with build(load_config(overrides)) as built:
        built.prepare()
        yield built


def test_logits_agree_across_window_group_and_page_edges_with_fewer_picks_than_groups(assembly, sequences):
    """Beyond 256 tokens there are more than 64 groups of four, and the indexer has to choose."""
    driver = Driver(assembly)
    for sequence in sequences:
        driver.join(sequence)
    driver.extend({0: 300, 1: 120})
    driver.extend({0: 77})
    plans = cycle(
        [{0: (6, 4), 1: (6, 6)}, {0: (1, 1), 1: (6, 2)}, {0: (6, 6), 1: (3, 1)}, {0: (6, 1), 1: (5, 5)}]
    )
    for step in range(60):
        driver.verify(next(plans), LayoutForm.RAGGED if step % 3 else LayoutForm.UNIFORM, seed=step)
    for _ in range(20):
        driver.decode([0, 1])
    assert driver.active[0].committed > 256 + 128
    assert driver.compared > 800
    for sequence in list(driver.active):
        driver.leave(sequence)


def test_the_checkpoint_is_small_and_says_how_it_was_trained():
    weights = FOLDER / "model.safetensors"
    assert weights.stat().st_size <= 10_000_000
    training = json.loads((FOLDER / "training.json").read_text())
    assert training["held_out_loss_nats_per_byte"] < 1.07
    assert {"corpus", "settings", "hardware", "torch", "transformers"} <= set(training)
    with safe_open(weights, "pt") as file:
        dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    assert "BF16" in dtypes


def test_the_recorded_held_out_loss_is_about_what_the_weights_give(library):
    """Source that is younger than the checkpoint, so the model cannot have seen it."""
    tokens = torch.tensor([list(inspect.getsource(schema).encode()[:1024])])
    logits = library(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:])
    assert loss < 2.5


def test_configured_dimensions_are_those_of_the_checkpoint():
    config = load_config(["model=tiny"])
    from_folder = load_config(["model=checkpoint", f"model.checkpoint={FOLDER}"])
    from dspark_factory.planning.resolve import resolve_dims

    assert resolve_dims(config) == resolve_dims(from_folder)
