"""Tables of one record: buffers with their bytes, gates with their reasons, stages with their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_factory.reporting.console import readable_nbytes
from dspark_factory.results.record import BufferRecord, Record


def print_plan(record: Record, console: Console) -> None:
    """Everything that a plan says: buffers, totals, gates, graphs, the cost of requests and notes."""
    for part in (
        buffers_table(record),
        totals_table(record),
        gates_table(record),
        graph_lines(record),
        request_cost_table(record),
    ):
        console.print(part)
        console.print()
    for note in record.measurements.get("notes", ()):
        console.print(Text(f"note: {note}"))


def print_stages(record: Record, console: Console) -> None:
    """The parts of the job and their wall times."""
    table = simple_table("Stages", ("stage", "left"), ("seconds", "right"))
    for stage in record.stages:
        table.add_row(stage.name, f"{stage.seconds:.3f}")
    console.print(table)


def buffers_table(record: Record) -> Table:
    """One row per buffer in layout order."""
    table = simple_table(
        "Buffers",
        ("buffer", "left"),
        ("provider", "left"),
        ("role", "left"),
        ("dtype", "left"),
        ("size", "right"),
        ("bytes", "right"),
    )
    table.add_column("shape", overflow="fold", ratio=1)
    for buffer in record.buffers:
        table.add_row(
            buffer.name,
            buffer.provider,
            buffer.role,
            buffer.dtype,
            readable_nbytes(buffer.nbytes),
            f"{buffer.nbytes:,}",
            shape_text(buffer),
        )
    return table


def shape_text(buffer: BufferRecord) -> str:
    """Shape with what each number counts: ``64 requests × 6 draft tokens``."""
    return " × ".join(_counted(size, unit) for size, unit in zip(buffer.shape, buffer.units, strict=True))


def _counted(size: int, unit: str) -> str:
    words = unit.replace("_", " ")
    return f"{size} {words.removesuffix('s') if size == 1 else words}"


def totals_table(record: Record) -> Table:
    """Bytes per provider and per role, and of everything."""
    table = simple_table("Totals", ("of", "left"), ("size", "right"), ("bytes", "right"))
    for name, nbytes in _sums((f"provider {item.provider}", item.nbytes) for item in record.buffers):
        table.add_row(name, readable_nbytes(nbytes), f"{nbytes:,}")
    table.add_section()
    for name, nbytes in _sums((f"role {item.role}", item.nbytes) for item in record.buffers):
        table.add_row(name, readable_nbytes(nbytes), f"{nbytes:,}")
    table.add_section()
    for name, nbytes in _overall(record):
        table.add_row(name, readable_nbytes(nbytes), f"{nbytes:,}")
    return table


def gates_table(record: Record) -> Table:
    """Every feature: on or off, and why."""
    table = simple_table("Features", ("feature", "left"), ("", "left"))
    table.add_column("reason", overflow="fold", ratio=1)
    for name, gate in record.gates.items():
        state = Text("on", style="green") if gate.enabled else Text("off", style="yellow")
        table.add_row(name, state, gate.reason)
    return table


def graph_lines(record: Record) -> Text:
    """Names of the graphs to capture, largest first."""
    return Text(f"{len(record.graph_keys)} graphs: {', '.join(record.graph_keys)}")


def request_cost_table(record: Record) -> Table:
    """What a request costs in KV state, and how many fit."""
    cost: dict[str, Any] = record.measurements.get("kv", {})
    context_length = record.effective.get("context_length")
    table = simple_table("KV state", ("of", "left"), ("size", "right"), ("bytes", "right"))
    for label, key in (
        ("a further token", "nbytes_per_token"),
        ("a request, whatever its length", "nbytes_per_request"),
        (f"a request of {context_length} tokens", "nbytes_per_full_request"),
    ):
        if cost.get(key) is not None:
            table.add_row(label, readable_nbytes(cost[key]), f"{cost[key]:,.10g}")
    if cost.get("requests_that_fit") is not None:
        table.add_row(f"requests of {context_length} tokens that fit", "", f"{cost['requests_that_fit']:,}")
    return table


def simple_table(title: str, *columns: tuple[str, Any]) -> Table:
    """A plain table whose columns keep their words whole; names are never cut."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True, overflow="fold")
    return table


def _sums(items: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    totals: dict[str, int] = {}
    for name, nbytes in items:
        totals[name] = totals.get(name, 0) + nbytes
    yield from totals.items()


_OTHER_NBYTES = (
    ("device block, aligned", "block_nbytes"),
    ("staged on the host", "staged_nbytes"),
    ("graphs, estimated", "graph_nbytes_estimate"),
    ("graphs, measured", "graph_nbytes"),
)


def _overall(record: Record) -> Iterator[tuple[str, int]]:
    if record.nbytes is not None:
        yield "all buffers", record.nbytes
    for label, key in _OTHER_NBYTES:
        if record.effective.get(key):
            yield label, record.effective[key]
