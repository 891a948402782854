"""Copies inside a graph: the host waits for them as it does for copies of its own."""

from __future__ import annotations

import pytest
import torch

from dspark_factory import build, load_config
from dspark_factory.factory import Assembly
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.graph_keys import Mode

pytestmark = pytest.mark.gpu
OVERRIDES = ["task=build", "device=cuda", "pipeline.max_requests=2", "pipeline.capture_requests=[2]"]
CYCLES = 200_000_000
"""Of a kernel that keeps the device busy for about a tenth of a second."""


@pytest.fixture(scope="module")
def assembly():
    with build(load_config(OVERRIDES)) as built:
        built.prepare()
        yield built


def verify(assembly: Assembly, tokens: list[int]):
    dims, rows = assembly.dims, [tokens[: assembly.dims.max_width]]
    return make_batch(dims, Mode.TARGET_VERIFY, slots=[0], prefix_lens=[0], token_ids=rows)


def busy() -> torch.cuda.Event:
    """Told when the device has nothing left of what keeps it busy."""
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    done = torch.cuda.Event()
    done.record()
    assert not done.query()
    return done


def test_mirrors_are_not_written_before_a_replayed_copy_has_left_them(assembly):
    batch = verify(assembly, list(range(1, 9)))
    assembly.replay(batch)
    done = busy()
    assembly.pipeline.launch(batch)
    assembly.arena.await_staged()
    assert done.query()


def test_outputs_are_not_read_before_a_replayed_copy_has_brought_them(assembly):
    batches = [verify(assembly, list(range(start, start + 8))) for start in (1, 30)]
    expected = [assembly.replay(batch).tokens for batch in batches]
    assert expected[0] != expected[1]
    for batch, tokens in zip(batches, expected, strict=True):
        busy()
        assert assembly.pipeline.result(assembly.pipeline.launch(batch)).tokens == tokens
