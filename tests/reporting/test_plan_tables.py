"""Tables that stay readable at 100 columns, in a pipe and without colour."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dspark_factory.config import load_config
from dspark_factory.planning.plan import plan
from dspark_factory.reporting import output_console, print_plan, print_stages, readable_nbytes
from dspark_factory.reporting.tables import shape_text
from dspark_factory.results import Record, RecordBuilder
from dspark_factory.results.record import BufferRecord

OVERRIDES = [
    "model=v4_flash",
    "speculative=dspark",
    "pipeline=server",
    "speculative.verify_layout=ragged",
    "device.memory_gib=400",
    "workload.temperature=1",
]


@pytest.fixture(scope="module")
def record() -> Record:
    builder = RecordBuilder("plan")
    builder.add_plan(plan(load_config(OVERRIDES)))
    builder.add_stage("CONSTRUCT", 1.25)
    return builder.finish()


def printed(record: Record, width: int) -> str:
    stream = io.StringIO()
    print_plan(record, Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


@pytest.mark.parametrize("width", [100, 160])
def test_no_name_is_cut_and_no_line_is_too_wide(record: Record, width: int) -> None:
    text = printed(record, width)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    first_words = {line.split()[0] for line in text.splitlines() if line.strip()}
    for buffer in record.buffers:
        assert buffer.name in first_words
        assert buffer.provider in text
        assert f"{buffer.nbytes:,}" in text
    for name in record.gates:
        assert name in first_words


def test_every_row_is_one_line_in_a_pipe(record: Record) -> None:
    lines = printed(record, 160).splitlines()
    for buffer in record.buffers:
        row = next(line for line in lines if line.split()[:2] == [buffer.name, buffer.provider])
        assert row.rstrip().endswith(shape_text(buffer))


def test_gates_tell_their_state_and_reason(record: Record) -> None:
    lines = [" ".join(line.split()) for line in printed(record, 160).splitlines()]
    assert "logits off buffers.logits.enabled=false" in lines
    assert "extend_start_loc on speculative.verify_layout=ragged" in lines


def test_totals_graphs_and_the_cost_of_requests_are_told(record: Record) -> None:
    text = printed(record, 160)
    assert record.nbytes is not None
    assert f"{record.nbytes:,}" in text
    assert "role target" in text
    assert "provider kv_pools" in text
    assert f"{len(record.graph_keys)} graphs: target_verify/uniform 64x6" in text
    assert "a request of 131072 tokens" in text
    assert "requests of 131072 tokens that fit" in text


def test_notes_are_printed() -> None:
    builder = RecordBuilder("plan")
    builder.add_plan(plan(load_config(["model=v4_pro", "speculative=dspark"])))
    text = printed(builder.finish(), 100)
    assert "note: speculation is off although speculative=dspark" in text


def test_a_record_without_a_plan_prints_empty_tables() -> None:
    assert "0 graphs" in printed(RecordBuilder("plan").finish(), 100)


def test_stages_are_printed_with_their_seconds(record: Record) -> None:
    stream = io.StringIO()
    print_stages(record, Console(file=stream, width=100))
    assert "CONSTRUCT" in stream.getvalue()
    assert "1.250" in stream.getvalue()


@pytest.mark.parametrize(
    ("shape", "units", "text"),
    [
        ((64, 6), ("requests", "draft_tokens"), "64 requests × 6 draft tokens"),
        ((1, 2), ("layers", "ring rows"), "1 layer × 2 ring rows"),
    ],
)
def test_shapes_say_what_they_count(shape: tuple[int, ...], units: tuple[str, ...], text: str) -> None:
    buffer = BufferRecord(
        name="any", provider="any", role="target", shape=shape, units=units, dtype="int32", nbytes=0
    )
    assert shape_text(buffer) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (141_453_312, "134.9 MiB"), (3 * 2**40, "3.0 TiB")],
)
def test_bytes_are_readable(nbytes: int, text: str) -> None:
    assert readable_nbytes(nbytes) == text


def test_output_without_a_terminal_has_no_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    output_console().print("[red]word[/red]")
    assert capsys.readouterr().out == "word\n"


def test_a_silent_console_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    output_console(silent=True).print("word")
    assert capsys.readouterr().out == ""
