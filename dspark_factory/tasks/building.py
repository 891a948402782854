"""Building and preparing an assembly, with its stages in the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dspark_factory.config.schema import Config
from dspark_factory.factory import Assembly, build
from dspark_factory.results import RecordBuilder


@contextmanager
def prepared(config: Config, record: RecordBuilder) -> Iterator[Assembly]:
    """A prepared assembly; its plan and stage times go into the record, also when a stage fails."""
    with build(config) as assembly:
        record.add_plan(assembly.plan)
        record.effective |= {"num_threads": torch.get_num_threads()}
        if assembly.arena.device.type == "cuda":
            record.device_name = torch.cuda.get_device_name(assembly.arena.device)
        try:
            assembly.prepare()
        finally:
            for name, seconds in assembly.stage_seconds.items():
                record.add_stage(name, seconds)
        record.effective |= {
            "captured_graphs": [str(key) for key in assembly.pipeline.graphs],
            "graph_nbytes": assembly.pipeline.graph_nbytes,
            "tuned": assembly.tuned,
        }
        yield assembly
