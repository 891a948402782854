"""The start-up order, replay policies, close and rebuild, on the shipped checkpoint."""

from __future__ import annotations

import gc
import logging

import pytest
import torch

from dspark_factory.config import load_config
from dspark_factory.errors import AddressChanged, CaptureError, NoBucket, StageOrderError
from dspark_factory.factory import Assembly, build
from dspark_factory.pipeline.batch import make_batch, padded
from dspark_factory.pipeline.stages import STAGES, Stage
from dspark_factory.planning.graph_keys import LayoutForm, Mode

SMALL = ["task=build", "pipeline.warmup_runs=1", "pipeline.context_length=256"]


@pytest.fixture(scope="module")
def prepared():
    with build(load_config([*SMALL, "speculative.verify_layout=ragged"])) as assembly:
        assembly.prepare()
        admit(assembly, 4)
        yield assembly


PREFIX = 60


def admit(assembly: Assembly, requests: int) -> None:
    """Requests with a prompt of ``PREFIX`` tokens and more in the first slots."""
    slots = [assembly.pages.join() for _ in range(requests)]
    assert slots == list(range(requests))
    for slot in slots:
        tokens = [(7 * slot + place) % 97 + 30 for place in range(PREFIX + slot)]
        updates = assembly.pages.extend(slot, PREFIX + 40)
        assembly.replay(
            make_batch(
                assembly.dims,
                Mode.EXTEND,
                slots=[slot],
                prefix_lens=[0],
                token_ids=[tokens],
                page_updates=updates,
            )
        )


def verify_batch(assembly: Assembly, requests: int, form: LayoutForm | None = None, prefix: int = PREFIX):
    return make_batch(
        assembly.dims,
        Mode.TARGET_VERIFY,
        slots=range(requests),
        prefix_lens=[prefix + index for index in range(requests)],
        token_ids=[[40 + index, 41, 42, 43, 44, 45] for index in range(requests)],
        form=form,
    )


def test_stages_run_once_and_in_order_only():
    with build(load_config(SMALL)) as assembly:
        pipeline = assembly.pipeline
        assert pipeline.clock.now is Stage.CONSTRUCT
        for stage, call in (
            (Stage.WARMUP, pipeline.warmup),
            (Stage.CHECK, pipeline.check),
            (Stage.CAPTURE, pipeline.capture),
            (Stage.FREEZE, pipeline.freeze),
        ):
            with pytest.raises(
                StageOrderError, match=f"at CONSTRUCT and cannot run {stage.value}: .*AUTOTUNE"
            ):
                call()
        with pytest.raises(
            StageOrderError, match=r"cannot run replay: it needs FREEZE to be done; call prepare\(\)"
        ):
            assembly.replay(verify_batch(assembly, 1))
        assembly.prepare()
        assert list(assembly.stage_seconds) == [stage.value for stage in STAGES]
        with pytest.raises(StageOrderError, match="no stage is left"):
            assembly.prepare()


def test_a_closed_assembly_replays_nothing_and_another_can_be_built(prepared):
    """Field report 23: building with one draft-token count does not disturb the next, in any order."""
    outputs = {}
    for count in (7, 3, 5, 3, 7):
        with build(load_config([*SMALL, f"speculative.num_draft_tokens={count}"])) as assembly:
            assembly.prepare()
            tokens = [65] * count
            batch = make_batch(
                assembly.dims, Mode.TARGET_VERIFY, slots=[0], prefix_lens=[0], token_ids=[tokens],
                page_updates=assembly.pages.extend(assembly.pages.join(), count),
            )  # fmt: skip
            result = assembly.replay(batch).tokens
            assert outputs.setdefault(count, result) == result
        with pytest.raises(StageOrderError, match="CLOSED"):
            assembly.replay(batch)
        assembly.close()


def test_closing_gives_the_memory_back():
    assembly = build(load_config(SMALL))
    assembly.prepare()
    block = assembly.arena.block.untyped_storage().data_ptr()
    assembly.close()
    gc.collect()
    held = [
        item
        for item in gc.get_objects()
        if isinstance(item, torch.Tensor) and item.untyped_storage().data_ptr() == block
    ]
    assert not held


def test_every_requested_graph_is_captured_largest_first(prepared):
    keys = list(prepared.pipeline.graphs)
    assert keys == list(prepared.plan.graph_keys)
    assert [key.rows for key in keys] == sorted((key.rows for key in keys), reverse=True)


def test_a_missing_graph_fails_freeze_when_strict_and_warns_otherwise(caplog):
    for strict in (True, False):
        with build(load_config([*SMALL, f"pipeline.strict={strict}"])) as assembly:
            pipeline = assembly.pipeline
            pipeline.autotune()
            pipeline.warmup()
            pipeline.check()
            pipeline.capture()
            key = pipeline.keys[0]
            del pipeline.graphs[key]
            if strict:
                with pytest.raises(CaptureError, match="1 of 6 requested graphs were not captured"):
                    pipeline.freeze()
            else:
                pipeline.freeze()
                assert f"graph {key} was requested but not captured" in caplog.text


def test_smaller_batches_run_on_the_next_bucket_and_padding_stays_inert(prepared):
    three = prepared.replay(verify_batch(prepared, 3, LayoutForm.UNIFORM))
    assert three.key.requests == 4
    assert len(three.tokens) == 3
    alone = prepared.replay(verify_batch(prepared, 1, LayoutForm.UNIFORM))
    assert alone.tokens[0] == three.tokens[0]


def test_a_request_gets_the_same_result_alone_and_in_a_batch(prepared):
    """Field report 32: neighbours and their slots do not matter."""
    four = prepared.replay(verify_batch(prepared, 4, LayoutForm.RAGGED)).tokens
    for index in range(4):
        batch = make_batch(
            prepared.dims, Mode.TARGET_VERIFY, slots=[index], prefix_lens=[PREFIX + index],
            token_ids=[[40 + index, 41, 42, 43, 44, 45]],
        )  # fmt: skip
        assert prepared.replay(batch).tokens[0] == four[index]


def test_padding_after_a_larger_ragged_batch_is_neutral(prepared):
    """Field reports, further idea 2: ragged 6, 1, 3, then two uniform requests padded to four."""
    ragged = make_batch(
        prepared.dims, Mode.TARGET_VERIFY, slots=[0, 1, 2], prefix_lens=[0, 0, 0], token_ids=[[1] * 6, [1], [1] * 3]
    )  # fmt: skip
    prepared.replay(ragged)
    assert prepared.buffers["extend_seq_lens"][:4].tolist() == [6, 1, 3, 0]
    assert prepared.buffers["extend_start_loc"][:4].tolist() == [0, 6, 7, 10]
    two = verify_batch(prepared, 2, LayoutForm.UNIFORM)
    four = next(key for key in prepared.pipeline.keys if key.requests == 4 and key.form is LayoutForm.UNIFORM)
    prepared.pipeline.stage(padded(two, four))
    assert prepared.buffers["extend_seq_lens"][:4].tolist() == [6, 6, 0, 0]
    assert prepared.buffers["request_slots"][:4].tolist() == [0, 1, 4, 4]
    assert prepared.buffers["prefix_lens"][:4].tolist() == [PREFIX, PREFIX + 1, 0, 0]


def test_a_graph_of_one_form_never_serves_the_other(prepared):
    """Field reports, further idea 3: the layout form is part of the key."""
    for form in LayoutForm:
        assert prepared.replay(verify_batch(prepared, 2, form)).key.form is form


def test_an_idle_batch_touches_nothing_and_returns_nothing(prepared):
    """Field report 41: no requests is a normal input."""
    before = prepared.arena.block.clone()
    batch = make_batch(prepared.dims, Mode.TARGET_VERIFY, slots=[], prefix_lens=[], token_ids=[])
    result = prepared.replay(batch)
    assert result.tokens == []
    assert result.accept_lens == []
    assert torch.equal(prepared.arena.block, before)


def build_with_policy(policy: str) -> Assembly:
    overrides = [
        "pipeline.max_requests=9",
        "pipeline.capture_requests=[1,2,4,8]",
        f"pipeline.bucket_policy={policy}",
    ]
    assembly = build(load_config([*SMALL, *overrides]))
    assembly.prepare()
    admit(assembly, 9)
    return assembly


def test_policy_error_names_the_batch_and_the_largest_bucket():
    """Field report 18: nine requests on buckets up to eight."""
    with (
        build_with_policy("error") as assembly,
        pytest.raises(NoBucket, match=r"batch of 9 requests .* holds 8"),
    ):
        assembly.replay(verify_batch(assembly, 9))


@pytest.mark.parametrize("policy", ["eager", "split"])
def test_policies_that_go_on_are_right_warn_once_and_count(policy, caplog):
    """Field report 18: the result is that of smaller batches; one warning over five calls, counter five."""
    with build_with_policy(policy) as assembly, caplog.at_level(logging.WARNING):
        nine = [assembly.replay(verify_batch(assembly, 9)).tokens for _ in range(5)][-1]
        assert assembly.pipeline.uncaptured_batches == 5
        assert len([record for record in caplog.records if "fits no captured graph" in record.message]) == 1
        assert nine[:8] == assembly.replay(verify_batch(assembly, 8)).tokens


def test_a_moved_buffer_is_found_before_a_graph_replays_its_old_address():
    """Field report 11: rebinding instead of updating in place is named with buffer and provider."""
    with build(load_config(SMALL)) as assembly:
        assembly.prepare()
        tensor = assembly.buffers["extend_seq_lens"]
        tensor.data = tensor.clone()
        with pytest.raises(
            AddressChanged, match=r"extend_seq_lens \(provider extend_seq_lens\).*never rebind"
        ):
            assembly.pipeline.verify_addresses()


def test_nothing_grows_and_no_address_changes_over_changing_batches(prepared):
    """Field report 46: 200 steps with batches of 1, 3, 4 and 2 requests in both forms."""
    addresses = {name: tensor.data_ptr() for name, tensor in prepared.buffers.items()}
    gc.collect()
    tensors = None
    for step in range(200):
        requests = (1, 3, 4, 2)[step % 4]
        form = (LayoutForm.UNIFORM, LayoutForm.RAGGED)[step // 4 % 2]
        result = prepared.replay(verify_batch(prepared, requests, form, prefix=PREFIX + step % 30))
        assert len(result.tokens) == requests
        if step == 20:
            gc.collect()
            tensors = sum(isinstance(item, torch.Tensor) for item in gc.get_objects())
    gc.collect()
    assert sum(isinstance(item, torch.Tensor) for item in gc.get_objects()) == tensors
    assert addresses == {name: tensor.data_ptr() for name, tensor in prepared.buffers.items()}
    prepared.pipeline.verify_addresses()


def test_tuned_shapes_contain_the_captured_ones_and_capture_runs_nothing_for_the_first_time(monkeypatch):
    """Field reports 13 and 21: tune, warm up, then capture, the same callable on the same shapes."""
    with build(load_config(SMALL)) as assembly:
        runs: list[tuple[Stage | None, object]] = []
        step = assembly.pipeline._live.step
        original = step.run
        monkeypatch.setattr(
            step, "run", lambda key: (runs.append((assembly.pipeline.clock.now, key)), original(key))
        )
        assembly.prepare()
        by_stage = {stage: {key for now, key in runs if now is stage} for stage in STAGES}
        captured = set(assembly.pipeline.graphs)
        tuned, warmed = by_stage[Stage.CONSTRUCT], by_stage[Stage.AUTOTUNE]
        assert captured == tuned == warmed == by_stage[Stage.CHECK]
        assert {key.rows for key in tuned} >= {6, 12, 24}
