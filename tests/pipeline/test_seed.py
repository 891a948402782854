"""The failure that started it all, and what becomes of it here."""

from __future__ import annotations

import pytest
import torch

from dspark_factory.config import load_config
from dspark_factory.errors import CaptureError, FeatureDisabled
from dspark_factory.factory import build
from dspark_factory.pipeline.graphs import EagerGraph
from dspark_factory.pipeline.stages import Stage
from tests.lazy_provider import LAZY

MESSAGE = "Inplace update to inference tensor outside InferenceMode is not allowed"


def test_a_naive_loop_dies_in_capture_with_torchs_own_message():
    """Field report 1: the buffer is born in an inference-mode dummy run and written during capture."""
    lens: list[torch.Tensor] = []

    def verify() -> None:
        if not lens:
            lens.append(torch.full((8,), 6, dtype=torch.int32))
        lens[0].fill_(6)

    with torch.inference_mode():
        verify()
    with pytest.raises(RuntimeError, match=MESSAGE):
        verify()
    with pytest.raises(CaptureError, match=MESSAGE):
        EagerGraph().capture(verify)


def test_the_pipeline_names_the_lazy_provider_before_any_capture(register):
    register(LAZY)
    config = load_config(["+schema/buffers@buffers.lazy_verify=lazy_verify", "task=build"])
    with build(config) as assembly:
        with pytest.raises(CaptureError, match="lazy_verify") as caught:
            assembly.prepare()
        assert "inference" in str(caught.value)
        assert "lazy_provider.py" in str(caught.value)
        assert assembly.pipeline.clock.now in (Stage.AUTOTUNE, Stage.WARMUP)
        assert not assembly.pipeline.graphs


def test_speculation_off_plans_and_allocates_nothing_speculative():
    with build(load_config(["speculative=off", "task=build"])) as assembly:
        assembly.prepare()
        names = set(assembly.buffers)
        assert not names & {"extend_seq_lens", "extend_start_loc", "accept_lens"}
        assert all("verify" not in str(key) for key in assembly.pipeline.graphs)
        with pytest.raises(FeatureDisabled, match="speculation is off"):
            assembly.buffers["extend_seq_lens"]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_build_gives_normal_tensors_in_any_grad_mode(mode):
    """Field report 2: the constructor steps out of whatever mode it is called in."""
    with mode():
        assembly = build(load_config(["task=build"]))
    try:
        assert assembly.arena.inference_tensors() == []
        assembly.prepare()
    finally:
        assembly.close()
