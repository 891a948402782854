"""What the benchmark prints: speeds and ratios side by side. From the record alone."""

from __future__ import annotations

from rich.console import Console

from dspark_factory.reporting.console import readable_nbytes
from dspark_factory.reporting.tables import print_stages, simple_table
from dspark_factory.results import Record

CONTENDERS = {
    "transformers": "transformers generate",
    "without_speculation": "without speculation",
    "with_speculation": "with speculation",
}


def print_bench(record: Record, console: Console) -> None:
    """Print a finished bench record."""
    print_stages(record, console)
    speeds = simple_table(
        "Whole generations, one request", ("contender", "left"), ("tokens per second", "right")
    )
    for name, speed in (record.tokens_per_second or {}).items():
        speeds.add_row(CONTENDERS[name], f"{speed or 0:.1f}")
    console.print(speeds)
    ratios = simple_table(
        "Ratios within a round", ("of", "left"), ("median", "right"), ("low", "right"), ("high", "right")
    )
    for name, ratio in record.measurements["speed_ratios"].items():
        fast, slow = (CONTENDERS[part] for part in name.split(" / "))
        ratios.add_row(f"{fast} to {slow}", *(f"{ratio[key]:.2f}" for key in ("median", "low", "high")))
    console.print(ratios)
    if record.accept_length is not None:
        console.print(f"accept length: {record.accept_length:.2f} committed tokens per step, bonus included")
    soak = record.measurements.get("soak")
    if soak:
        growth = ", ".join(
            f"{name} {readable_nbytes(value)}" for name, value in soak["growth_nbytes"].items()
        )
        console.print(
            f"soak: {soak['steps']} verify steps, growth after warm-up: {growth}; addresses constant"
        )
    console.print(f"all contenders agree on greedy output: {record.lossless}")
