"""What the main job prints: texts, speed, acceptance, stages and memory. From the record alone."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from dspark_factory.reporting.console import readable_nbytes
from dspark_factory.reporting.tables import print_stages, simple_table
from dspark_factory.results import Record

RUN_NAMES = {"without_speculation": "without speculation", "with_speculation": "with speculation"}


def print_generation(record: Record, console: Console, *, show_text: bool) -> None:
    """Print a finished generate record."""
    if show_text:
        for item in record.measurements.get("texts", []):
            console.rule(style="dim")
            console.print(Text.assemble((item["prompt"], "dim"), item["text"]))
        console.rule(style="dim")
    print_stages(record, console)
    _print_speed(record, console)
    _print_acceptance(record, console)
    _print_reports(record, console)
    for note in record.measurements.get("notes", []):
        console.print(f"note: {note}", style="dim")
    console.print(
        f"buffers: {readable_nbytes(record.nbytes or 0)} in one allocation, {len(record.buffers)} views; "
        f"{len(record.effective.get('captured_graphs', []))} graphs"
    )
    console.print(Text.assemble(("lossless: ", "bold"), _verdict(record)))


def _print_speed(record: Record, console: Console) -> None:
    table = simple_table(
        "Decoding",
        ("run", "left"),
        ("tokens", "right"),
        ("steps", "right"),
        ("tokens per second", "right"),
        ("ratio", "right"),
    )
    speeds = record.tokens_per_second or {}
    base = speeds.get("without_speculation")
    for name, speed in speeds.items():
        run: dict[str, Any] = record.measurements[name]
        ratio = f"{speed / base:.2f}" if base and speed else "–"
        table.add_row(RUN_NAMES[name], str(run["tokens"]), str(run["steps"]), f"{speed or 0:.1f}", ratio)
    console.print(table)


def _print_acceptance(record: Record, console: Console) -> None:
    run = record.measurements.get("with_speculation")
    if run is None or record.accept_length is None:
        return
    rates = ["–" if rate is None else f"{rate:.2f}" for rate in run["acceptance_per_position"]]
    console.print(
        f"accept length: {record.accept_length:.2f} committed tokens per request and step, bonus included, of at "
        f"most {record.effective.get('num_draft_tokens')}"
    )
    console.print(f"accepted up to draft 1, 2, …: {', '.join(rates)}")


def _print_reports(record: Record, console: Console) -> None:
    """One line for each provider that reported."""
    for name, report in record.measurements.get("providers", {}).items():
        values = ", ".join(f"{key} {_short(value)}" for key, value in report.items())
        console.print(Text.assemble((f"{name}: ", "bold"), values))


def _short(value: Any) -> str:
    """A number with two decimals, a list by its elements, anything else as it is."""
    if isinstance(value, list):
        return " ".join(map(_short, value)) or "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _verdict(record: Record) -> tuple[str, str]:
    if record.lossless is None:
        return ("not compared (greedy decoding with task.compare=true compares)", "dim")
    if record.lossless:
        return ("yes, greedy output equals decoding without speculation, token for token", "green")
    return ("NO, outputs differ", "bold red")
