"""Benchmarks: whole decodes of a checkpoint, or attention alone and in the full stack of a model without one."""

from __future__ import annotations

from rich.console import Console

from dspark_factory.config.schema import Config
from dspark_factory.results import RecordBuilder


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Run the benchmark that the model allows; errors as of the two."""
    if config.model.checkpoint is None:
        from dspark_factory.tasks import bench_attention

        bench_attention.run(config, record, console)
    else:
        from dspark_factory.tasks import bench_decoding

        bench_decoding.run(config, record, console)
