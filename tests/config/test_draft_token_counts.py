"""The one place where the draft-token count, the block size and the trained block size meet."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from dspark_factory.config import load_config
from dspark_factory.config.model_shape import checkpoint_folder
from dspark_factory.config.rules import MAX_DRAFT_TOKENS
from dspark_factory.errors import ConfigError
from dspark_factory.planning.plan import plan

FLASH = ["model=v4_flash", "speculative=dspark"]


@pytest.mark.parametrize(
    ("overrides", "num_draft_tokens"),
    [
        (["speculative=ngram"], 6),
        (["speculative=ngram", "speculative.block_size=3"], 4),
        (["speculative=ngram", "model=v4_flash"], 6),
        (FLASH, 6),
        ([*FLASH, "model.dspark.block_size=9"], 10),
        ([*FLASH, "speculative.block_size=7"], 8),
        ([*FLASH, "speculative.num_draft_tokens=4"], 4),
        ([*FLASH, "speculative.block_size=3", "speculative.num_draft_tokens=4"], 4),
        (["speculative=ngram", "speculative.num_draft_tokens=null"], None),
        (["speculative=off"], None),
        (["speculative.num_draft_tokens=2"], 2),
        ([f"speculative.num_draft_tokens={MAX_DRAFT_TOKENS}"], MAX_DRAFT_TOKENS),
        (["speculative.num_draft_tokens='4'"], 4),
    ],
)
def test_the_count_follows_from_what_is_given(overrides: list[str], num_draft_tokens: int | None) -> None:
    assert load_config(overrides).speculative.num_draft_tokens == num_draft_tokens


def test_the_trained_block_size_of_a_checkpoint_folder_is_the_default(tmp_path: Path) -> None:
    stated = json.loads((checkpoint_folder("tiny") / "config.json").read_text())
    stated |= {"dspark_block_size": 3, "dspark_target_layer_ids": [1], "dspark_markov_rank": 8}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    config = load_config(["model=checkpoint", f"model.checkpoint={tmp_path}", "speculative=dspark"])
    assert config.speculative.num_draft_tokens == 4


@pytest.mark.parametrize("block_size", [3, 5, 7])
def test_a_block_size_override_reaches_every_provider(block_size: int) -> None:
    """Field report 25: one resolved geometry; the trained value is read nowhere else."""
    planned = plan(load_config([*FLASH, f"speculative.block_size={block_size}"]))
    assert planned.dims.block_size == block_size
    assert planned.dims.num_draft_tokens == block_size + 1
    buffers = {buffer.name: buffer for buffer in planned.buffers}
    assert buffers["extend_seq_lens"].fill == block_size + 1
    assert buffers["target_tokens"].sizes == (planned.dims.max_batch_requests * (block_size + 1),)
    assert {key.width for key in planned.graph_keys} == {1, block_size + 1}


def test_a_block_size_and_a_count_that_disagree_are_refused_with_both_numbers() -> None:
    """Field report 25: q != gamma + 1 given explicitly is a configuration error with both numbers."""
    with pytest.raises(ConfigError) as refused:
        load_config([*FLASH, "speculative.block_size=5", "speculative.num_draft_tokens=8"])
    (reason,) = refused.value.reasons
    assert "speculative.block_size=5" in reason
    assert "speculative.num_draft_tokens=8" in reason
    assert "num_draft_tokens=6" in reason


def test_fewer_drafts_than_trained_are_accepted_silently(caplog: pytest.LogCaptureFixture) -> None:
    """Field report 26: native 5, k=3 is accepted."""
    with caplog.at_level(logging.WARNING):
        load_config([*FLASH, "speculative.block_size=3"])
    assert not caplog.records


def test_more_drafts_than_trained_warn_once_with_both_numbers(caplog: pytest.LogCaptureFixture) -> None:
    """Field report 26: native 5, k=7 is accepted with one warning naming both and their sources."""
    with caplog.at_level(logging.WARNING):
        load_config([*FLASH, "speculative.block_size=7"])
    (warning,) = caplog.messages
    assert "block size of 7" in warning
    assert "trained for 5 (model.dspark.block_size)" in warning


def test_strict_turns_the_warning_into_a_refusal() -> None:
    """Field report 26: a strict flag turns the warning into an error."""
    with pytest.raises(ConfigError, match=r"block size of 7.*trained for 5.*speculative\.strict=true"):
        load_config([*FLASH, "speculative.block_size=7", "speculative.strict=true"])


@pytest.mark.parametrize("block_size", [0, -1])
def test_a_block_size_below_one_is_refused_with_one_reason(block_size: int) -> None:
    """Field report 26: k=0 or negative is rejected."""
    with pytest.raises(ConfigError) as refused:
        load_config([*FLASH, f"speculative.block_size={block_size}"])
    assert refused.value.reasons == (f"speculative.block_size={block_size} must be at least 1",)


@pytest.mark.parametrize(
    "override",
    [
        f"speculative.num_draft_tokens={MAX_DRAFT_TOKENS + 1}",
        f"speculative.draft_token_candidates=[{MAX_DRAFT_TOKENS + 1}]",
        "speculative.num_draft_tokens=1000",
    ],
)
def test_a_count_beyond_the_maximum_is_refused_and_the_maximum_named(override: str) -> None:
    """Field report 24: limits are checked when the configuration is loaded."""
    with pytest.raises(ConfigError) as refused:
        load_config([override])
    (reason,) = refused.value.reasons
    assert f"beyond the supported maximum {MAX_DRAFT_TOKENS}" in reason


def test_candidates_below_two_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"draft_token_candidates\[1\]=1: write an integer of at least 2"):
        load_config(["speculative.draft_token_candidates=[4,1]"])


def test_speculation_that_is_off_takes_no_draft_tokens() -> None:
    with pytest.raises(ConfigError, match="speculative=off takes no draft tokens"):
        load_config(["speculative=off", "speculative.num_draft_tokens=4"])


def test_a_capture_size_above_the_request_pool_is_refused_with_both_numbers() -> None:
    """Field report 10: pool 16, capture [1,8,32] fails before any allocation, naming both numbers."""
    with pytest.raises(ConfigError) as refused:
        load_config(["pipeline.max_requests=16", "pipeline.capture_requests=[1,8,32]"])
    (reason,) = refused.value.reasons
    assert "pipeline.capture_requests has 32" in reason
    assert "pipeline.max_requests=16" in reason
