"""Tables of the attention benchmark. From the record alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from dspark_factory.reporting.console import readable_nbytes
from dspark_factory.reporting.tables import simple_table
from dspark_factory.results import Record


def print_attention_bench(record: Record, console: Console) -> None:
    """Print a finished attention benchmark."""
    found = record.measurements
    ceilings = found["ceilings"]
    console.print(
        f"ceilings of {record.environment.get('device') or 'this CPU'}: "
        f"copy {ceilings['copy_nbytes_per_second'] / 1e12:.2f} TB/s, "
        f"bfloat16 products {ceilings['matrix_flops'] / 1e12:.0f} TFLOP/s"
    )
    for name, reasons in found.get("left_out", {}).items():
        console.print(f"{name} is left out: {'; '.join(reasons)}")
    console.print(one_layer_table(found["one_layer"]))
    for name, error in found["one_layer"]["errors"].items():
        console.print(f"largest difference of {name} to fp64: {error:.2g}")
    for name, stack in found["stack"].items():
        console.print(stack_table(name, stack))
        for line in stack_lines(stack):
            console.print(line)


def one_layer_table(layer: dict[str, Any]) -> Table:
    """Microseconds of each contender, and the ratio of the first to it."""
    title = f"One sparse layer: {layer['heads']} heads x {layer['head_dim']}, {layer['keys']} keys a row"
    table = simple_table(
        title,
        ("requests", "right"),
        ("backend", "left"),
        ("microseconds", "right"),
        ("ratio", "right"),
        ("TFLOP/s", "right"),
        ("of ceiling", "right"),
    )
    for requests, contenders in layer["requests"].items():
        for name, item in contenders.items():
            table.add_row(
                f"{requests} x {layer['rows_per_request']}",
                name,
                f"{item['microseconds']:.1f}",
                f"{item['ratio']:.3f}",
                f"{item['tflops']:.0f}",
                f"{item['matrix_share']:.0%}",
            )
        table.add_section()
    return table


def stack_table(name: str, stack: dict[str, Any]) -> Table:
    """A verify step of all layers, by batch size and context."""
    table = simple_table(
        f"Verify step of {stack['layers']} attention layers on {name}",
        ("requests", "right"),
        ("context", "right"),
        ("graph ms", "right"),
        ("eager ms", "right"),
        ("eager / graph", "right"),
        ("attention", "right"),
        ("scores", "right"),
        ("host µs", "right"),
    )
    for row in stack["rows"]:
        shares = row.get("kernel_shares", {})
        table.add_row(
            f"{row['requests']}",
            f"{row['context']:,}",
            f"{row['microseconds'] / 1e3:.3f}",
            f"{row['eager_microseconds'] / 1e3:.2f}",
            f"{row['eager_ratio']:.1f}",
            _percent(shares.get("attention")),
            _percent(shares.get("index_scores")),
            f"{row['host_launch_microseconds'] + row['host_read_microseconds']:.0f}",
        )
    return table


def stack_lines(stack: dict[str, Any]) -> Iterator[str]:
    """Start-up and memory."""
    seconds = stack["startup_seconds"]
    stages = ", ".join(f"{stage} {spent:.2f}" for stage, spent in seconds.items())
    yield (
        f"start-up of {stack['graphs']} graphs: {sum(seconds.values()):.1f} s ({stages}); the first time, with "
        f"compilation: {sum(stack['first_startup_seconds'].values()):.1f} s"
    )
    yield (
        f"buffers {readable_nbytes(sum(stack['nbytes'].values()))}, graphs {readable_nbytes(stack['graph_nbytes'])}"
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
