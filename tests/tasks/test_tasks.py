"""Every task as a user runs it: the command in a process of its own."""

from __future__ import annotations

import json

import pytest

from dspark_factory.config.model_shape import checkpoint_folder

SHORT = ["workload.max_new_tokens=24", "pipeline.warmup_runs=1"]


def document(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_main_job_decodes_checks_and_reports(dspark, tmp_path):
    result = dspark(*SHORT)
    assert result.returncode == 0, result.stderr
    assert "def read_config(path):" in result.stdout
    assert "lossless: yes" in result.stdout
    for stage in ("PLAN", "CONSTRUCT", "AUTOTUNE", "WARMUP", "CHECK", "CAPTURE", "FREEZE"):
        assert stage in result.stdout
    record = json.loads(next(tmp_path.rglob("record.json")).read_text())
    assert record["status"] == "ok"
    assert record["lossless"] is True


def test_the_main_job_as_one_json_document(dspark):
    record = document(dspark(*SHORT, "output=json", "speculative.verify_layout=ragged"))
    assert record["status"] == "ok"
    assert record["lossless"] is True
    assert 1 <= record["accept_length"] <= 6
    assert set(record["tokens_per_second"]) == {"without_speculation", "with_speculation"}
    assert [stage["name"] for stage in record["stages"]][-1] == "FREEZE"
    assert record["nbytes"] == sum(buffer["nbytes"] for buffer in record["buffers"])
    assert len(record["measurements"]["texts"]) == 4
    histogram = record["measurements"]["with_speculation"]["accept_length_histogram"]
    assert sum(histogram.values()) > 0


def test_speculation_off_decodes_plainly(dspark):
    record = document(dspark(*SHORT, "output=json", "speculative=off"))
    assert record["lossless"] is None
    assert record["accept_length"] is None
    assert set(record["tokens_per_second"]) == {"without_speculation"}
    assert not any(buffer["name"].startswith("extend_s") for buffer in record["buffers"])


def test_a_prompt_file_and_one_prompt(dspark, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "import os\\n"}\n{"prompt": "x = "}\n')
    record = document(dspark(*SHORT, "output=json", "workload.file=prompts.jsonl"))
    assert [text["prompt"] for text in record["measurements"]["texts"]] == ["import os\n", "x = "]
    (tmp_path / "bad.jsonl").write_text('{"prompt": 3}\n')
    refused = dspark(*SHORT, "workload.file=bad.jsonl")
    assert refused.returncode == 2
    assert 'bad.jsonl line 1: "prompt" must be text' in refused.stderr
    single = document(dspark(*SHORT, "output=json", "workload.prompt='def f(x):'"))
    assert len(single["measurements"]["texts"]) == 1


def test_sampling_says_that_it_is_not_compared(dspark):
    result = dspark(*SHORT, "workload.temperature=0.8", "task.show_text=false")
    assert result.returncode == 0, result.stderr
    assert "lossless: not compared" in result.stdout


def test_a_model_without_checkpoint_or_drafter_is_explained(dspark):
    result = dspark("model=v4_flash")
    assert result.returncode == 2
    assert (
        "model=v4_flash has dimensions but no checkpoint to decode with; choose model=tiny" in result.stderr
    )
    off = document(dspark(*SHORT, "speculative=dspark", "output=json"))
    assert off["gates"]["speculation"]["enabled"] is False
    assert any("model tiny carries no DSpark drafter" in note for note in off["measurements"]["notes"])


def test_build_replays_every_graph(dspark):
    record = document(dspark("task=build", "output=json", "pipeline.warmup_runs=1"))
    assert set(record["measurements"]["replay_milliseconds"]) == set(record["graph_keys"])
    assert all(time > 0 for time in record["measurements"]["replay_milliseconds"].values())


def test_bench_compares_in_rounds_and_watches_memory(dspark):
    arguments = [
        "task=bench",
        "task.repeats=2",
        "task.soak_steps=30",
        "workload.prompt='x = 1'",
        "output=json",
    ]
    record = document(dspark(*SHORT, *arguments))
    assert record["lossless"] is True
    assert len(record["measurements"]["round_seconds"]) == 2
    assert set(record["measurements"]["speed_ratios"]) == {
        "without_speculation / transformers",
        "with_speculation / without_speculation",
        "with_speculation / transformers",
    }
    assert record["measurements"]["soak"]["steps"] >= 30
    assert record["measurements"]["soak"]["addresses_constant"] is True


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for index in range(40):
        (folder / f"{index}.txt").write_text(f"line {index}: the quick brown fox\n" * 20)
    return folder


def test_a_trained_checkpoint_can_be_decoded_from(dspark, corpus):
    small = [
        "model.checkpoint=null",
        "model.hidden_size=64",
        "model.num_attention_heads=2",
        "model.head_dim=32",
        "model.qk_rope_head_dim=16",
        "model.index_head_dim=16",
        "model.moe_intermediate_size=32",
        "model.q_lora_rank=32",
        "model.o_lora_rank=16",
    ]
    train = [
        "task=train_target",
        *small,
        "task.text_folder=text",
        "task.checkpoint_out=trained",
        "task.steps=4",
    ]
    trained = dspark(*train, "task.batch_size=2", "task.sequence_length=64")
    assert trained.returncode == 0, trained.stderr
    assert "held-out loss" in trained.stdout
    record = document(dspark(*SHORT, "model=checkpoint", "model.checkpoint=trained", "output=json"))
    assert record["lossless"] is True
    again = dspark(*train)
    assert again.returncode == 2
    assert "task.checkpoint_out" in again.stderr


def test_a_damaged_checkpoint_is_one_clear_line(dspark, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    for path in checkpoint_folder("tiny").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = dspark("model=checkpoint", f"model.checkpoint={folder}")
    assert result.returncode == 2
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.stderr
    assert "cannot load" in result.stderr


SMALL_STACK = (
    "model=v4_flash",
    "model.layer_types=[sliding_attention,compressed_sparse_attention,heavily_compressed_attention]",
    "model.num_attention_heads=4",
    "model.head_dim=64",
    "model.qk_rope_head_dim=16",
    "model.index_n_heads=4",
    "model.index_head_dim=32",
    "model.index_topk=64",
    "speculative=dspark",
    "pipeline.max_requests=2",
    "pipeline.capture_requests=[1,2]",
    "pipeline.context_length=1024",
    "task=bench",
    "task.requests=[1,2]",
    "task.contexts=[512,4096]",
    "task.repeats=1",
)


def test_the_attention_benchmark_of_a_model_without_a_checkpoint(dspark, tmp_path):
    record = document(dspark(*SMALL_STACK, "task.plot=plots/attention.svg", "output=json"))
    found = record["measurements"]
    assert list(found["one_layer"]["requests"]) == ["1", "2"]
    assert found["one_layer"]["errors"]["reference"] < 1e-5
    for contenders in found["one_layer"]["requests"].values():
        assert contenders["reference"]["ratio"] == 1
        assert contenders["reference"]["microseconds"] > 0
    rows = found["stack"]["reference"]["rows"]
    assert [(row["requests"], row["context"]) for row in rows] == [(1, 512), (2, 512)]  # 4,096 has no room
    assert all(row["host_launch_microseconds"] > 0 and row["eager_ratio"] > 0 for row in rows)
    assert list(found["stack"]["reference"]["startup_seconds"])[-1] == "FREEZE"
    assert "<svg" in (tmp_path / "plots/attention.svg").read_text()


def test_the_attention_benchmark_refuses_what_cannot_be_compared(dspark):
    result = dspark(*SMALL_STACK, "task.contenders=[flashinfer]")
    assert result.returncode == 2
    assert "backend=flashinfer: its kernels run on CUDA only" in result.stderr
    result = dspark(*SMALL_STACK, "task.contenders=[flash_attention]")
    assert result.returncode == 2
    assert "task.contenders: backend 'flash_attention' is not installed" in result.stderr
    result = dspark(*SMALL_STACK, "speculative=off")
    assert result.returncode == 2
    assert "set speculative=dspark or speculative=ngram" in result.stderr
