"""What the ring holds, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO

import pytest
from dspark_accept_history import AcceptHistorySpec, plugin
from rich.console import Console

from dspark_factory import Assembly, build, load_config, plan
from dspark_factory.config.schema import Config
from dspark_factory.engine.decoder import Decoder
from dspark_factory.registry import buffer_plugins, register_plugin
from dspark_factory.results import RecordBuilder
from dspark_factory.tasks import generate

SMALL = (
    "task=build",
    "pipeline.max_requests=3",
    "pipeline.capture_requests=[1,3]",
    "pipeline.context_length=512",
)
PROMPTS = [
    list(b"def add(a, b):\n    return a + b\n\ndef add("),
    list(b"import os\nimport os\n"),
    list(b"a = 1\n"),
]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """The plugin is known, as if it were installed."""
    installed = plugin.name in buffer_plugins
    if not installed:
        register_plugin(plugin)
    yield
    if not installed:
        buffer_plugins.unregister(plugin.name)


def configured(spec: AcceptHistorySpec, *overrides: str) -> Config:
    config = load_config([*SMALL, *overrides])
    config.buffers[plugin.name] = spec
    return config


def decoded(assembly: Assembly) -> list[list[int]]:
    """Accepted lengths of each prompt's verify steps, as the decoder counts them on the host."""
    lens: list[list[int]] = [[] for _ in range(assembly.dims.max_requests)]
    replay = assembly.replay

    def watched(batch):
        result = replay(batch)
        if batch.key.mode.value == "target_verify":
            for slot, length in zip(batch.slots, result.accept_lens, strict=True):
                lens[slot].append(length)
        return result

    assembly.replay = watched
    Decoder(assembly, speculative=True).generate(PROMPTS)
    return lens


@pytest.mark.parametrize("layout", ["uniform", "ragged"])
@pytest.mark.parametrize("depth", [3, 64])
def test_the_ring_holds_the_last_accepted_lengths_of_every_slot(depth: int, layout: str) -> None:
    overrides = ("workload.max_new_tokens=24", f"speculative.verify_layout={layout}")
    with build(configured(AcceptHistorySpec(depth=depth), *overrides)) as assembly:
        assembly.prepare()
        seen = decoded(assembly)
        cursor = assembly.buffers["accept_history_cursor"].tolist()
        ring = assembly.buffers["accept_history"].tolist()
    assert len({length for lens in seen for length in lens}) > 1
    for slot, lens in enumerate(seen):
        assert cursor[slot] == len(lens)
        newest = lens[-depth:]
        steps = range(len(lens) - len(newest), len(lens))
        assert [ring[slot][step % depth] for step in steps] == newest


def test_its_report_counts_what_the_rings_hold() -> None:
    with build(configured(AcceptHistorySpec(), "workload.max_new_tokens=24")) as assembly:
        assembly.prepare()
        flat = [length for lens in decoded(assembly) for length in lens]
        report = assembly.reports()["accept_history"]
    assert json.loads(json.dumps(report)) == report
    assert report["verify_steps"] == sum(report["histogram"]) == len(flat)
    assert report["mean_accept_length"] == pytest.approx(sum(flat) / len(flat))
    assert report["histogram"][1] == flat.count(1)


def test_a_fresh_assembly_reports_no_mean() -> None:
    with build(configured(AcceptHistorySpec(depth=4))) as assembly:
        assembly.prepare()
        report = assembly.reports()["accept_history"]
    assert report == {"verify_steps": 0, "mean_accept_length": None, "histogram": [], "depth": 4}


def test_it_costs_what_the_readme_says_and_nothing_without_speculation() -> None:
    server = ("pipeline.max_requests=64", "pipeline.capture_requests=[1,64]")
    result = plan(configured(AcceptHistorySpec(), *server))
    sizes = {buffer.name: buffer.nbytes for buffer in result.buffers}
    assert (sizes["accept_history"], sizes["accept_history_cursor"]) == (16_640, 260)
    off = plan(configured(AcceptHistorySpec(), "speculative=off"))
    assert "accept_history" not in off.nbytes_by_provider
    assert "speculation is off" in off.gates["accept_history"].reason


def test_a_ring_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"depth=0: a ring keeps at least 1 step"):
        AcceptHistorySpec(depth=0)


def test_the_main_job_shows_it_in_record_and_console(hydra_restore_singletons: None) -> None:
    overrides = ("buffers=[default,accept_history]", "+accept_history=short", "workload.max_new_tokens=12")
    config = load_config(overrides)
    record, printed = RecordBuilder("generate"), StringIO()
    record.set_config(config)
    generate.run(config, record, Console(file=printed, width=160))
    finished = record.finish()
    report = finished.measurements["providers"]["accept_history"]
    assert report["depth"] == 16
    assert report["mean_accept_length"] == pytest.approx(finished.accept_length)
    (line,) = [line for line in printed.getvalue().splitlines() if line.startswith("accept_history: ")]
    assert f"verify_steps {report['verify_steps']}, mean_accept_length {finished.accept_length:.2f}" in line
