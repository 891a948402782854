"""The decode loop on the shipped checkpoint, against the transformers library's own generate."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, DeepseekV4ForCausalLM

from dspark_factory.config import load_config
from dspark_factory.config.model_shape import checkpoint_folder
from dspark_factory.engine.decoder import Decoder
from dspark_factory.errors import TaskError
from dspark_factory.factory import build

FOLDER = checkpoint_folder("tiny")
PROMPTS = [
    "def read_config(path):\n    with open(path) as file:\n",
    "x",
    "class Queue:\n    def __init__(self, maxsize=0):\n        self.maxsize = maxsize\n",
    "import os\n" * 15,
    "for i in range(10):\n    print(i)\n",
    "\x00\x01ü€",
]
NEW = 60


@pytest.fixture(scope="module")
def tokens():
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    return [tokenizer(prompt).input_ids for prompt in PROMPTS]


@pytest.fixture(scope="module")
def expected(tokens):
    model = DeepseekV4ForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    outputs = []
    for prompt in tokens:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False)
        outputs.append(out[0, len(prompt) :].tolist())
    return outputs


def assembly(*overrides: str):
    common = [f"workload.max_new_tokens={NEW}", "pipeline.max_requests=3", "pipeline.capture_requests=[1,3]"]
    built = build(load_config([*common, *overrides]))
    built.prepare()
    return built


@pytest.fixture(scope="module")
def uniform():
    with assembly() as built:
        yield built


def test_plain_decoding_equals_the_librarys(uniform, tokens, expected):
    generation = Decoder(uniform, speculative=False).generate(tokens)
    assert generation.outputs == expected
    assert generation.total_statistics.accept_length is None


def test_speculative_decoding_is_lossless_and_takes_fewer_steps(uniform, tokens, expected):
    plain = Decoder(uniform, speculative=False).generate(tokens)
    generation = Decoder(uniform, speculative=True).generate(tokens)
    assert generation.outputs == expected
    assert generation.steps < plain.steps / 1.5
    assert generation.total_statistics.accept_length > 1.5


@pytest.mark.parametrize("count", range(2, 17))
def test_every_draft_token_count_is_lossless(count, tokens, expected):
    """Field report 24: each count, not the end points only, ragged, with a prompt chunk shorter than a window."""
    overrides = [
        f"speculative.num_draft_tokens={count}",
        "speculative.verify_layout=ragged",
        "pipeline.extend_rows=50",
        "pipeline.warmup_runs=1",
        "pipeline.capture_requests=[3]",
    ]
    with assembly(*overrides) as built:
        assert Decoder(built, speculative=True).generate(tokens).outputs == expected


def test_a_small_page_pool_delays_requests_and_changes_nothing(tokens, expected):
    overrides = ["pipeline.context_length=256", "pipeline.page_tokens=128", "pipeline.kv_pool_tokens=384"]
    with assembly(*overrides) as built:
        assert built.plan.dims.kv_pages == 3
        assert Decoder(built, speculative=True).generate(tokens).outputs == expected
        assert built.pages.free_pages == 3
        assert built.pages.free_slots == 3


def test_output_ends_at_the_end_token(uniform, tokens, expected):
    end = expected[0][20]
    first = expected[0].index(end)
    generation = Decoder(uniform, speculative=True).generate(tokens[:1], end_token=end)
    assert generation.outputs[0] == expected[0][: first + 1]


def test_decoding_up_to_the_very_context_limit(tokens, expected):
    length = len(tokens[0]) + NEW - 1
    with assembly(f"pipeline.context_length={length}") as built:
        assert Decoder(built, speculative=True).generate(tokens[:1]).outputs == expected[:1]
        with pytest.raises(TaskError, match=rf"prompt 0 has {len(tokens[0]) + 1} tokens .* more than"):
            Decoder(built, speculative=True).generate([[*tokens[0], 1]])


def test_an_empty_prompt_is_named(uniform):
    with pytest.raises(TaskError, match="prompt 1 is empty"):
        Decoder(uniform, speculative=False).generate([[1], []])


def test_sampling_is_reproducible_and_independent_of_neighbours(tokens):
    with assembly("workload.temperature=0.8", "workload.seed=7") as built:
        together = Decoder(built, speculative=True).generate(tokens[:3]).outputs
        again = Decoder(built, speculative=True).generate(tokens[:3]).outputs
        first = Decoder(built, speculative=True).generate(tokens[:1]).outputs
        other = replace(built.config.workload, seed=8)
        built.config.workload = other
        different = Decoder(built, speculative=True).generate(tokens[:1]).outputs
    assert together == again
    assert first == together[:1]
    assert different != first
