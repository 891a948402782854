"""Decoding by a schedule of draft tokens loses nothing and follows the batch size."""

from __future__ import annotations

from collections import Counter

from dspark_factory import build, load_config
from dspark_factory.engine.decoder import Decoder
from dspark_factory.planning.graph_keys import Mode

OVERRIDES = [
    "task=build",
    "pipeline.warmup_runs=1",
    "pipeline.context_length=256",
    "workload.max_new_tokens=24",
    "speculative.schedule=[[1,6],[2,3],[3,null]]",
]
PROMPTS = [list(b"def f(x):\n    return"), list(b"import os\nimport"), list(b"class A:\n"), list(b"for i in")]


def test_outputs_are_those_without_speculation_and_widths_those_of_the_schedule(monkeypatch):
    with build(load_config(OVERRIDES)) as assembly:
        assembly.prepare()
        plain = Decoder(assembly, speculative=False).generate(PROMPTS)
        seen: Counter[tuple[int, Mode, int]] = Counter()
        replay = assembly.replay

        def watched(batch):
            if batch.key.mode is not Mode.EXTEND:
                seen[(len(batch.slots), batch.key.mode, batch.key.width)] += 1
            return replay(batch)

        monkeypatch.setattr(assembly, "replay", watched)
        scheduled = Decoder(assembly, speculative=True).generate(PROMPTS)
        alone = Decoder(assembly, speculative=True, most_requests=1).generate(PROMPTS)
        assert assembly.pipeline.uncaptured_batches == 0
    assert scheduled.outputs == alone.outputs == plain.outputs
    widths = {
        1: (Mode.TARGET_VERIFY, 6),
        2: (Mode.TARGET_VERIFY, 3),
        3: (Mode.DECODE, 1),
        4: (Mode.DECODE, 1),
    }
    assert {(mode, width) == widths[requests] for requests, mode, width in seen} == {True}
    assert {requests for requests, _, _ in seen} >= {1, 4}
    assert len(alone.verify_seconds) == len(alone.draft_seconds) == alone.steps
