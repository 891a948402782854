"""Tasks by kind; a task's module is imported when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dspark_factory.errors import TaskError
from dspark_factory.registry.registry import load_object, unknown_name

if TYPE_CHECKING:
    from rich.console import Console

    from dspark_factory.config.schema import Config
    from dspark_factory.results import RecordBuilder

TASKS: dict[str, str] = {
    "generate": "dspark_factory.tasks.generate:run",
    "plan": "dspark_factory.tasks.plan:run",
    "build": "dspark_factory.tasks.build:run",
    "measure": "dspark_factory.tasks.measure:run",
    "recommend": "dspark_factory.tasks.recommend:run",
    "bench": "dspark_factory.tasks.bench:run",
    "train_target": "dspark_factory.tasks.train_target:run",
}


class Task(Protocol):
    """What a task's module offers."""

    def __call__(self, config: Config, record: RecordBuilder, console: Console) -> None:
        """Do the work.

        Args:
            config: passed its rules.
            record: to fill in; the caller finishes and writes it.
            console: stdout; silent with ``output=json``.

        Raises:
            DsparkError: it cannot be done; the caller prints the message without a traceback.
        """
        ...


def load_task(kind: str) -> Task:
    """Import the task of this kind.

    Raises:
        TaskError: there is no such task.
    """
    if kind not in TASKS:
        raise TaskError(f"task.kind: {unknown_name('task', kind, TASKS)}")
    return load_object(TASKS[kind])
