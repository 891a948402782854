"""Twenty thousand replays of a real checkpoint with requests that join, grow, lose drafts and leave."""

from __future__ import annotations

import random

import pytest
import torch

from dspark_factory import build, load_config
from dspark_factory.factory import Assembly
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.dims import LayerType
from dspark_factory.planning.graph_keys import LayoutForm, Mode

pytestmark = pytest.mark.gpu
STEPS, SAMPLED = 20_000, 400
OVERRIDES = [
    "task=build",
    "device=cuda",
    "backend=flashinfer",
    "speculative.verify_layout=ragged",
    "pipeline.max_requests=8",
    "pipeline.capture_requests=[1,2,4,8]",
    "pipeline.context_length=512",
]


class Fuzz:
    """Requests at random lengths; every step verifies some of them, in a random layout, with random drafts."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly, self.dims = assembly, assembly.dims
        self.random = random.Random(0)
        self.prefixes: dict[int, int] = {}

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(self.dims.vocab_size) for _ in range(count)]

    def join_or_leave(self) -> None:
        pages = self.assembly.pages
        for slot in [slot for slot, prefix in self.prefixes.items() if prefix > self.dims.context_length - 8]:
            pages.leave(slot)
            del self.prefixes[slot]
        if self.prefixes and self.random.random() < 0.02:
            slot = self.random.choice(list(self.prefixes))
            pages.leave(slot)
            del self.prefixes[slot]
        if pages.free_slots and (not self.prefixes or self.random.random() < 0.1):
            slot, prompt = pages.join(), self.tokens(self.random.randrange(1, 90))
            self.prefixes[slot] = 0
            self.run(Mode.EXTEND, [slot], [prompt])
            self.prefixes[slot] = len(prompt)

    def batch(self, mode: Mode, slots: list[int], rows: list[list[int]], form: LayoutForm | None = None):
        pages = self.assembly.pages
        return make_batch(
            self.dims,
            mode,
            slots=slots,
            prefix_lens=[self.prefixes[slot] for slot in slots],
            token_ids=rows,
            page_updates=[
                update
                for slot, own in zip(slots, rows, strict=True)
                for update in pages.extend(slot, self.prefixes[slot] + len(own))
            ],
            form=form,
        )

    def kept(self) -> list[torch.Tensor]:
        """KV and compressor state of all request slots, without what padding rows write to."""
        buffers, dims = self.assembly.buffers, self.dims
        rings = dims.max_requests * dims.window_ring_rows
        parts = [buffers[name][:, :rings] for name in ("kv_sliding", "kv_csa", "kv_hca")]
        for name, kind in (("kv_csa", LayerType.CSA), ("kv_hca", LayerType.HCA)):
            parts.append(buffers[name][:, dims.entry_region_start + dims.entries_per_page(kind) :])
        parts.append(buffers["index_keys"][:, 1:])
        states = ("csa_state", "csa_index_state", "hca_state")
        return parts + [buffers[name][:, : dims.max_requests] for name in states]

    def run(self, mode: Mode, slots: list[int], rows: list[list[int]]) -> list[list[int]]:
        return self.assembly.replay(self.batch(mode, slots, rows)).tokens

    def verify(self, *, compared: bool) -> None:
        slots = self.random.sample(list(self.prefixes), self.random.randrange(1, len(self.prefixes) + 1))
        rows = [self.tokens(self.random.randrange(1, self.dims.max_width + 1)) for _ in slots]
        form = self.random.choice(list(LayoutForm))
        batch = self.batch(Mode.TARGET_VERIFY, slots, rows, form)
        pipeline, block = self.assembly.pipeline, self.assembly.arena.block
        before = block.clone() if compared else None
        result = pipeline.result(pipeline.launch(batch))
        if before is not None:
            after = [part.clone() for part in self.kept()]
            block.copy_(before)
            assert pipeline.result(pipeline.launch(batch, eager=True)).tokens == result.tokens
            assert all(torch.equal(part, now) for part, now in zip(after, self.kept(), strict=True))
        for slot, tokens in zip(slots, result.tokens, strict=True):
            self.prefixes[slot] += len(tokens)


def test_memory_stays_addresses_hold_and_replays_equal_eager_steps():
    with build(load_config(OVERRIDES)) as assembly:
        assembly.prepare()
        fuzz, allocated = Fuzz(assembly), 0
        for step in range(STEPS):
            fuzz.join_or_leave()
            fuzz.verify(compared=step % SAMPLED == 0)
            if step == STEPS // 10:
                allocated = torch.cuda.memory_allocated()
        assembly.pipeline.verify_addresses()
        assert torch.cuda.memory_allocated() == allocated
        assert assembly.pipeline.uncaptured_batches == 0


def test_graphs_are_captured_again_in_one_process_and_every_byte_comes_back():
    torch.cuda.empty_cache()
    for _ in range(2):
        with build(load_config(OVERRIDES)) as assembly:
            assembly.prepare()
            assert assembly.pipeline.graph_nbytes > 0
            fuzz = Fuzz(assembly)
            for _ in range(20):
                fuzz.join_or_leave()
                fuzz.verify(compared=False)
        del assembly, fuzz
    before = torch.cuda.memory_allocated()
    with build(load_config(OVERRIDES)) as assembly:
        assembly.prepare()
    assert torch.cuda.memory_allocated() == before
