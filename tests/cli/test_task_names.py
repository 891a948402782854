"""Tasks are looked up by kind and imported when they run."""

from __future__ import annotations

import pytest

from dspark_factory.config import schema
from dspark_factory.errors import TaskError
from dspark_factory.tasks import TASKS, load_task
from dspark_factory.tasks.plan import run


def test_every_kind_of_the_schema_has_a_task() -> None:
    assert set(TASKS) == set(schema.TASKS)


def test_a_task_is_found_by_its_kind() -> None:
    assert load_task("plan") is run


def test_an_unknown_kind_is_told_the_nearest() -> None:
    with pytest.raises(TaskError, match="did you mean 'plan'"):
        load_task("plann")
