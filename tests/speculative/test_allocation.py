"""Dealing rows on the device, and as a Triton kernel, against the host's reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_factory.speculative.allocation import allocate_rows
from dspark_factory.speculative.scheduler import allocate, survival


@st.composite
def steps(draw, most_requests: int = 9, most_block: int = 7):
    """Survivals, caps and a budget; a coarse confidence makes many survivals equal, and zeros of them."""
    requests, block = draw(st.integers(1, most_requests)), draw(st.integers(1, most_block))
    confidence = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1, width=32))
    rows = st.lists(confidence, min_size=block, max_size=block)
    confidences = draw(st.lists(rows, min_size=requests, max_size=requests))
    caps = draw(st.lists(st.integers(0, block + 2), min_size=requests, max_size=requests))
    budget = draw(st.integers(0, requests * (block + 1) + 3))
    return survival(np.array(confidences, dtype=np.float32)), np.array(caps), budget


def on_device(function, survivals, caps, budget, dtype=torch.int32) -> list[int]:
    lens = function(torch.from_numpy(survivals), torch.tensor(caps, dtype=dtype), torch.tensor([budget]))
    assert lens.dtype == torch.int64
    return lens.tolist()


@given(step=steps(), dtype=st.sampled_from([torch.int32, torch.int64]))
def test_rows_equal_the_reference(step, dtype):
    assert on_device(allocate_rows, *step, dtype) == allocate(*step).tolist()


@given(step=steps(most_requests=40, most_block=3))
def test_rows_add_up_to_the_budget_as_far_as_anchors_and_caps_allow(step):
    survivals, caps, budget = step
    lens = np.array(on_device(allocate_rows, *step))
    most = np.minimum(caps, survivals.shape[1] + 1)
    assert (lens <= most).all()
    assert ((lens > 0) == (caps > 0)).all()
    assert lens.sum() == min(max(budget, np.count_nonzero(caps)), most.sum())


def test_equal_survivals_go_to_the_earlier_position_and_then_to_the_lower_request():
    survivals, caps = np.ones((3, 2), dtype=np.float32), np.array([3, 3, 3])
    dealt = [on_device(allocate_rows, survivals, caps, budget) for budget in range(3, 10)]
    assert dealt == [[1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 2, 2], [3, 2, 2], [3, 3, 2], [3, 3, 3]]


@pytest.mark.parametrize(("budget", "expected"), [(0, [1, 0, 1]), (1, [1, 0, 1]), (99, [3, 0, 2])])
def test_anchors_are_dealt_below_their_number_and_caps_hold_above_everything(budget, expected):
    survivals = np.array([[0.9, 0.8], [1.0, 1.0], [0.5, 0.0]], dtype=np.float32)
    assert on_device(allocate_rows, survivals, np.array([3, 0, 2]), budget) == expected


def test_no_rows_beyond_budget_and_caps_where_a_survival_is_no_number():
    survivals = np.array([[np.nan, 0.8], [0.5, np.nan]], dtype=np.float32)
    lens = on_device(allocate_rows, survivals, np.array([3, 2]), 4)
    assert sum(lens) == 4
    assert lens[1] <= 2


@pytest.fixture(scope="module")
def fused():
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("interprets the kernel on the CPU")
    from dspark_factory.speculative.fused_allocation import fused_allocate_rows

    return fused_allocate_rows


class TestInterpretedKernel:
    """The kernel in Triton's interpreter; ``tests/gpu`` runs the compiled one."""

    @settings(max_examples=40, deadline=None)
    @given(step=steps(), dtype=st.sampled_from([torch.int32, torch.int64]))
    def test_rows_equal_the_reference(self, fused, step, dtype):
        assert on_device(fused, *step, dtype) == allocate(*step).tolist()

    def test_strides_of_survivals_are_followed(self, fused):
        survivals = torch.rand(7, 5, generator=torch.Generator().manual_seed(0)).cumprod(0).T
        caps, budget = torch.tensor([8, 3, 8, 0, 8]), torch.tensor([14])
        assert not survivals.is_contiguous()
        assert fused(survivals, caps, budget).tolist() == allocate_rows(survivals, caps, budget).tolist()

    @pytest.mark.parametrize(("requests", "dtype"), [(4, torch.float64), (8192, torch.float32)])
    def test_what_the_kernel_cannot_hold_is_refused(self, fused, requests, dtype):
        with pytest.raises(ValueError, match="float32 and 65536 drafts"):
            fused(torch.ones(requests, 16, dtype=dtype), torch.ones(requests), torch.tensor([1]))
