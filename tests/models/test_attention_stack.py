"""The attention stack without a checkpoint: real layers, synthetic inputs."""

from __future__ import annotations

import torch

from dspark_factory.config import load_config
from dspark_factory.factory import build
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.graph_keys import Mode

OVERRIDES = [
    "model=v4_flash",
    "model.num_attention_heads=4",
    "model.head_dim=64",
    "model.index_n_heads=4",
    "model.index_head_dim=64",
    "model.index_topk=8",
    "speculative=dspark",
    "pipeline.max_requests=2",
    "pipeline.capture_requests=[2]",
    "pipeline.context_length=512",
    "pipeline.extend_rows=200",
    "pipeline.warmup_runs=1",
    "buffers.logits.enabled=true",
    "model.vocab_size=64",
]


def steps(assembly, *, replayed: bool):
    """Extend, then three verify steps with other tokens and lengths; logits of each."""
    outputs = []
    slot = assembly.pages.join()
    prefix = 130
    for mode, length, tokens in (
        (Mode.EXTEND, 0, [place % 50 for place in range(prefix)]),
        (Mode.TARGET_VERIFY, prefix, [1, 2, 3, 4, 5, 6]),
        (Mode.TARGET_VERIFY, prefix + 2, [9, 9]),
        (Mode.TARGET_VERIFY, prefix + 3, [7, 6, 5, 4, 3, 2]),
    ):
        batch = make_batch(
            assembly.dims,
            mode,
            slots=[slot],
            prefix_lens=[length],
            token_ids=[tokens],
            page_updates=assembly.pages.extend(slot, length + len(tokens)),
        )
        if not replayed:
            assembly.pipeline.graphs.clear()
        result = assembly.replay(batch)
        assert result.logits is not None
        outputs.append(result.logits[: len(tokens)].clone())
    assembly.pages.leave(slot)
    return outputs


def test_all_43_layers_of_v4_flash_replay_what_they_compute_eagerly():
    """Field report 12: the graph is captured once and replayed over other lengths and tokens."""
    with build(load_config(OVERRIDES)) as assembly:
        assembly.prepare()
        assert len(assembly.dims.layer_types) == 43
        replayed = steps(assembly, replayed=True)
        eager = steps(assembly, replayed=False)
    for got, expected in zip(replayed, eager, strict=True):
        torch.testing.assert_close(got, expected)
        assert bool(got.isfinite().all())
    assert not torch.allclose(replayed[1], replayed[3])


def test_the_draft_block_of_the_checkpoint_sets_the_verify_width():
    """Field report 25: every provider reports the resolved geometry, whatever the checkpoint was trained for."""
    for block_size in (3, 5, 7):
        with build(load_config([*OVERRIDES, f"speculative.block_size={block_size}"])) as assembly:
            assert assembly.dims.num_draft_tokens == block_size + 1
            assert assembly.buffers["extend_seq_lens"].tolist() == [block_size + 1] * 2
            assert assembly.buffers["target_tokens"].shape == (2 * (block_size + 1),)
