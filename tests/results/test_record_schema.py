"""The record's schema: what is in it, and that it survives JSON."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from dspark_factory.config import load_config
from dspark_factory.planning.plan import plan
from dspark_factory.results import SCHEMA_VERSION, Record, RecordBuilder, Status, record_text
from dspark_factory.results.record import RecordError, plain

KEYS = [
    "schema_version", "task", "status", "failure", "config", "effective", "environment", "started_at",
    "seconds", "stages", "buffers", "nbytes", "gates", "graph_keys", "lossless", "accept_length",
    "tokens_per_second", "measurements",
]  # fmt: skip


@pytest.fixture
def builder() -> RecordBuilder:
    config = load_config(["task=plan", "model=v4_flash", "speculative=dspark"])
    builder = RecordBuilder("plan", requested=["task=plan"])
    builder.set_config(config)
    builder.add_plan(plan(config))
    return builder


def test_the_keys_and_their_order_are_the_schema(builder: RecordBuilder) -> None:
    assert list(builder.finish().to_plain()) == KEYS
    assert list(json.loads(record_text(builder.finish()))) == KEYS


def test_a_record_equals_itself_after_json(builder: RecordBuilder) -> None:
    builder.lossless = True
    builder.accept_length = 2.75
    builder.tokens_per_second = {"plain": 41.5, "speculative": 97.25}
    builder.measurements["ratios"] = [1.0, 2.0]
    builder.add_stage("CONSTRUCT", 0.5)
    record = builder.finish()
    assert Record.from_plain(json.loads(record_text(record))) == record


def test_the_plan_fills_buffers_gates_graphs_and_geometry(builder: RecordBuilder) -> None:
    record = builder.finish()
    buffers = {buffer.name: buffer for buffer in record.buffers}
    assert record.nbytes == sum(buffer.nbytes for buffer in record.buffers)
    lens = buffers["extend_seq_lens"]
    assert (lens.shape, lens.units, lens.dtype, lens.nbytes) == ((4,), ("requests",), "int32", 16)
    assert (lens.provider, lens.role) == ("extend_seq_lens", "target")
    assert record.gates["speculation"].enabled
    assert record.graph_keys[0] == "target_verify/uniform 4x6"
    assert record.effective["num_draft_tokens"] == 6
    assert record.effective["block_size"] == 5
    assert record.config["full"]["speculative"]["verify_layout"] == "uniform"
    assert record.config["full"]["model"]["layer_types"][0] == "sliding_attention"
    assert record.measurements["kv"]["nbytes_per_token"] == 13_760
    assert record.task == "plan"


def test_values_of_a_task_win_over_the_plans(builder: RecordBuilder) -> None:
    builder.effective["backend"] = "other"
    builder.add_plan(plan(load_config()))
    assert builder.finish().effective["backend"] == "other"


def test_the_environment_names_versions_without_a_device(builder: RecordBuilder) -> None:
    environment = builder.finish().environment
    assert set(environment) == {"python", "platform", "cpu_count", "versions"}
    assert set(environment["versions"]) == {
        "dspark-factory", "torch", "transformers", "hydra-core", "omegaconf", "flashinfer-python",
    }  # fmt: skip
    assert environment["versions"]["hydra-core"]
    builder.device_name = "NVIDIA H200"
    assert builder.finish().environment["device"] == "NVIDIA H200"


def test_stages_are_kept_in_order_even_when_they_raise(builder: RecordBuilder) -> None:
    with builder.stage("CONSTRUCT"):
        pass

    def interrupted_capture() -> None:
        with builder.stage("CAPTURE"):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        interrupted_capture()
    stages = builder.finish().stages
    assert [stage.name for stage in stages] == ["CONSTRUCT", "CAPTURE"]
    assert all(stage.seconds >= 0 for stage in stages)


def test_a_failure_is_kept_with_what_was_measured_before(builder: RecordBuilder) -> None:
    builder.measurements["steps"] = 7
    record = builder.finish(Status.FAILED, "out of memory")
    assert (record.status, record.failure) == (Status.FAILED, "out of memory")
    assert record.measurements["steps"] == 7
    assert record.to_plain()["status"] == "failed"


def test_the_start_is_utc_in_iso_8601(builder: RecordBuilder) -> None:
    record = builder.finish()
    assert record.started_at.endswith("+00:00")
    assert "T" in record.started_at
    assert record.seconds >= 0


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        ([float("-inf"), 1.5], [None, 1.5]),
        (Colour.RED, "red"),
        ({Colour.RED: Path("/a/b")}, {"red": "/a/b"}),
        ((1, 2), [1, 2]),
        (np.float32(1.5), 1.5),
        (np.float32("nan"), None),
        (np.int64(7), 7),
        ({1: True}, {"1": True}),
        (None, None),
    ],
)
def test_values_become_plain_json_without_nan(value: object, expected: object) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_what_has_no_plain_form_is_kept_by_its_text() -> None:
    assert plain(object).startswith("<class")


def test_nan_in_measurements_does_not_lose_the_record(builder: RecordBuilder) -> None:
    builder.accept_length = float("nan")
    builder.tokens_per_second = {"plain": float("nan")}
    document = json.loads(record_text(builder.finish()))
    assert document["accept_length"] is None
    assert document["tokens_per_second"] == {"plain": None}


def test_a_newer_version_is_refused(builder: RecordBuilder) -> None:
    values = builder.finish().to_plain() | {"schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(RecordError, match=rf"schema version {SCHEMA_VERSION + 1}.*upgrade dspark-factory"):
        Record.from_plain(values)


@pytest.mark.parametrize("version", [None, "1", True])
def test_something_else_is_no_record(version: object) -> None:
    with pytest.raises(RecordError, match="no schema_version"):
        Record.from_plain({"schema_version": version})


def test_a_missing_key_is_named(builder: RecordBuilder) -> None:
    values = builder.finish().to_plain()
    del values["gates"], values["stages"]
    with pytest.raises(RecordError, match="it lacks stages, gates"):
        Record.from_plain(values)


def test_a_malformed_value_is_refused(builder: RecordBuilder) -> None:
    with pytest.raises(RecordError, match="no record of schema version 1"):
        Record.from_plain(builder.finish().to_plain() | {"status": "fine"})


def test_keys_of_a_later_release_of_the_same_version_are_dropped(builder: RecordBuilder) -> None:
    record = builder.finish()
    assert Record.from_plain(record.to_plain() | {"later": 1}) == record
