"""The dry run: every buffer and its bytes, why it is on or off, and what requests cost. No torch."""

from __future__ import annotations

from rich.console import Console

from dspark_factory.config.schema import Config
from dspark_factory.planning.plan import plan
from dspark_factory.reporting import print_plan
from dspark_factory.results import RecordBuilder


def run(config: Config, record: RecordBuilder, console: Console) -> None:
    """Plan, record the plan and print it.

    Raises:
        ConfigError: the configuration cannot be planned; all reasons at once.
    """
    with record.stage("plan"):
        record.add_plan(plan(config))
    print_plan(record.finish(), console)
