"""Build, warm up, capture and replay every graph once: shows that a configuration starts, and how long it takes."""

from __future__ import annotations

import time

from rich.console import Console

from dspark_factory.config.schema import Config
from dspark_factory.factory import Assembly
from dspark_factory.pipeline.probes import neutral_batch
from dspark_factory.reporting.console import readable_nbytes
from dspark_factory.reporting.tables import print_stages, simple_table
from dspark_factory.results import RecordBuilder
from dspark_factory.tasks.building import prepared


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Prepare an assembly, replay every captured graph on scratch memory and time it."""
    with prepared(config, record) as assembly:
        replays = _replay_all(assembly)
        record.measurements["replay_milliseconds"] = replays
        record.measurements["block_nbytes"] = assembly.plan.block_nbytes
    print_stages(record.finish(), console)
    table = simple_table("Graphs", ("graph", "left"), ("replay, ms", "right"))
    for name, milliseconds in replays.items():
        table.add_row(name, f"{milliseconds:.2f}")
    console.print(table)
    console.print(f"buffers: {readable_nbytes(assembly.plan.nbytes)} planned and allocated")


def _replay_all(assembly: Assembly) -> dict[str, float]:
    """Best of three replays of each graph, host wall time in milliseconds until the outputs are on the host."""
    times: dict[str, float] = {}
    for key in assembly.pipeline.keys:
        batch = neutral_batch(assembly.dims, key)
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            assembly.replay(batch)
            seconds.append(time.perf_counter() - started)
        times[str(key)] = 1e3 * min(seconds)
    return times
