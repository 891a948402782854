"""The arena: what is planned is allocated, normal tensors in any grad mode, sealed afterwards."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_factory.api import BufferRequest, DType, extents
from dspark_factory.config import load_config
from dspark_factory.errors import AllocationAfterSeal, CapacityError, FeatureDisabled
from dspark_factory.memory.arena import Arena
from dspark_factory.planning.layout import ALIGNMENT_NBYTES
from dspark_factory.planning.plan import plan

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def planned():
    return plan(load_config(["speculative.verify_layout=ragged", "workload.temperature=0.7"]))


@settings(max_examples=25, deadline=None)
@given(
    requests=st.integers(1, 9),
    count=st.integers(2, 16),
    context=st.sampled_from([256, 300, 1024]),
    ragged=st.booleans(),
    warm=st.booleans(),
)
def test_planned_bytes_equal_allocated_bytes_for_any_geometry(requests, count, context, ragged, warm):
    config = load_config(
        [
            f"pipeline.max_requests={requests}",
            f"pipeline.capture_requests=[1,{requests}]",
            f"pipeline.context_length={context}",
            f"speculative.num_draft_tokens={count}",
            f"speculative.verify_layout={'ragged' if ragged else 'uniform'}",
            f"workload.temperature={0.5 if warm else 0.0}",
        ]
    )
    numbers = plan(config)
    arena = Arena(numbers, CPU)
    assert arena.nbytes == numbers.nbytes == sum(tensor.nbytes for tensor in arena.buffers.values())
    assert arena.block.nbytes == numbers.block_nbytes
    ends = 0
    for buffer in numbers.buffers:
        tensor = arena.buffers[buffer.name]
        assert tuple(tensor.shape) == buffer.sizes
        offset = tensor.data_ptr() - arena.block.data_ptr()
        assert offset == buffer.offset >= ends
        assert offset % ALIGNMENT_NBYTES == 0
        ends = offset + tensor.nbytes
    arena.close()


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_buffers_are_normal_tensors_whatever_mode_the_caller_is_in(planned, mode):
    """Field report 2: under inference mode too, and they may be written in any mode afterwards."""
    with mode():
        arena = Arena(planned, CPU)
        views = [tensor[:1] for tensor in arena.buffers.values()]
    assert not any(tensor.is_inference() for tensor in (*arena.buffers.values(), *views))
    for writer in (nullcontext, torch.no_grad, torch.inference_mode):
        with writer():
            for tensor in arena.buffers.values():
                tensor.fill_(1)
                tensor[:1].copy_(tensor[:1].clone())


def test_the_seeds_two_buffers_are_written_in_place_after_construction(planned):
    """Field report 1: same objects and addresses through an inference-mode warm-up, and writable behind it."""
    arena = Arena(planned, CPU)
    arena.seal()
    before = {name: (id(tensor), tensor.data_ptr()) for name, tensor in arena.buffers.items()}
    with torch.inference_mode():
        for name in ("extend_seq_lens", "extend_start_loc"):
            arena.buffers[name].fill_(3)
    for name in ("extend_seq_lens", "extend_start_loc"):
        arena.buffers[name].fill_(6)
        arena.buffers[name][:2].copy_(torch.tensor([1, 2]))
    assert before == {name: (id(tensor), tensor.data_ptr()) for name, tensor in arena.buffers.items()}
    assert arena.moved() == []
    assert arena.inference_tensors() == []


def test_asking_after_the_seal_names_the_provider(planned):
    arena = Arena(planned, CPU)
    arena.seal()
    request = BufferRequest(name="late", shape=extents(rows=1), dtype=DType.INT32)
    with pytest.raises(AllocationAfterSeal, match=r"provider 'lazy' asked for buffer 'late'.*requests\(\)"):
        arena.allocate("lazy", request)


def test_a_buffer_whose_gate_is_off_is_a_typed_error_with_the_reason():
    arena = Arena(plan(load_config(["speculative=off"])), CPU)
    with pytest.raises(
        FeatureDisabled, match="'extend_seq_lens' does not exist because it is off: speculation is off"
    ):
        arena.buffers["extend_seq_lens"]
    with pytest.raises(FeatureDisabled, match=r"no provider that is on offers it; off are .*sampling_inputs"):
        arena.buffers["temperatures"]
    assert "extend_seq_lens" not in arena.buffers


def test_slicing_past_the_capacity_is_refused(planned):
    arena = Arena(planned, CPU)
    assert len(arena.buffers.take("extend_seq_lens", 4)) == 4
    with pytest.raises(CapacityError, match="'extend_seq_lens' holds 4 entries, 5 were asked for"):
        arena.buffers.take("extend_seq_lens", 5)


def test_one_copy_brings_every_staged_buffer_to_the_device(planned):
    arena = Arena(planned, CPU)
    names = [buffer.name for buffer in planned.buffers if buffer.offset < planned.staged_nbytes]
    assert {"token_ids", "extend_seq_lens", "extend_start_loc", "uniforms", "page_updates"} <= set(names)
    for index, name in enumerate(names):
        arena.buffers.host(name)[...] = index
    arena.copy_staged()
    for index, name in enumerate(names):
        assert np.array_equal(arena.buffers[name].numpy(), arena.buffers.host(name))
        assert bool((arena.buffers[name] == index).all())


def test_a_buffer_written_on_the_device_has_no_host_mirror(planned):
    with pytest.raises(CapacityError, match="'kv_csa' has no host mirror"):
        Arena(planned, CPU).buffers.host("kv_csa")


def test_a_moved_buffer_is_noticed(planned):
    arena = Arena(planned, CPU)
    arena.seal()
    tensor = arena.buffers["extend_seq_lens"]
    tensor.data = tensor.clone()
    assert arena.moved() == ["extend_seq_lens"]
    assert arena.provider_of("extend_seq_lens") == "extend_seq_lens"
