"""Page allocator: no page has two owners, and nothing leaks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dspark_factory.errors import CapacityError
from dspark_factory.kv.page_allocator import PageAllocator
from dspark_factory.planning.dims import LayerType
from tests.geometry import DIMS


class Allocation(RuleBasedStateMachine):
    @initialize(pages=st.integers(1, 16))
    def start(self, pages):
        self.dims = replace(DIMS, kv_pages=pages)
        self.allocator = PageAllocator(self.dims)
        self.lengths: dict[int, int] = {}
        self.owner: dict[int, tuple[int, int]] = {}

    @precondition(lambda self: len(self.lengths) < self.dims.max_requests)
    @rule()
    def join(self):
        slot = self.allocator.join()
        assert slot not in self.lengths
        self.lengths[slot] = 0

    @precondition(lambda self: self.lengths)
    @rule(data=st.data(), more=st.integers(0, 70))
    def extend(self, data, more):
        slot = data.draw(st.sampled_from(sorted(self.lengths)))
        length = self.lengths[slot] + more
        free = self.allocator.free_pages
        try:
            updates = self.allocator.extend(slot, length)
        except CapacityError:
            assert self.allocator.free_pages == free
            return
        for owner, index, page in updates:
            assert owner == slot
            assert page not in self.owner
            assert 1 <= page <= self.dims.kv_pages
            self.owner[page] = (slot, index)
        self.lengths[slot] = max(length, self.lengths[slot])

    @precondition(lambda self: self.lengths)
    @rule(data=st.data())
    def leave(self, data):
        slot = data.draw(st.sampled_from(sorted(self.lengths)))
        self.allocator.leave(slot)
        del self.lengths[slot]
        self.owner = {page: owner for page, owner in self.owner.items() if owner[0] != slot}

    @invariant()
    def every_page_is_free_or_owned_once(self):
        if hasattr(self, "allocator"):
            assert self.allocator.free_pages + len(self.owner) == self.dims.kv_pages
            for slot, length in self.lengths.items():
                held = sorted(index for owner, index in self.owner.values() if owner == slot)
                assert held == list(range(-(-length // self.dims.page_tokens)))


TestAllocation = Allocation.TestCase
TestAllocation.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_errors_name_the_option_to_raise():
    allocator = PageAllocator(replace(DIMS, kv_pages=2))
    slot = allocator.join()
    with pytest.raises(
        CapacityError, match=r"needs 3 more KV pages and 2 are free; raise pipeline\.kv_pool_tokens"
    ):
        allocator.extend(slot, 96)
    with pytest.raises(CapacityError, match=r"129 tokens is beyond pipeline\.context_length=128"):
        allocator.extend(slot, 129)
    for _ in range(3):
        allocator.join()
    with pytest.raises(CapacityError, match="all 4 request slots are taken"):
        allocator.join()


def test_sliding_window_models_need_no_pages():
    allocator = PageAllocator(replace(DIMS, layer_types=(LayerType.SLIDING,), kv_pages=0))
    assert allocator.extend(allocator.join(), 100) == []
