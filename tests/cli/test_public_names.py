"""The names that scripts and notebooks rely on."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import dspark_factory

HEAVY = ("build", "Assembly")
"""Names that need torch."""
LIGHT = [name for name in dspark_factory.__all__ if name not in HEAVY]


@pytest.mark.parametrize("name", LIGHT)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(dspark_factory, name).__name__ == name
    assert name in dir(dspark_factory)


def test_plan_is_the_function_whatever_was_imported_before() -> None:
    code = (
        "import dspark_factory.planning.plan, dspark_factory.tasks.plan, dspark_factory as d;"
        "from dspark_factory import load_config, plan;"
        "assert callable(plan) and plan is d.plan;"
        "import dspark_factory.planning.plan;"
        "assert d.plan is plan;"
        "assert plan(load_config()).nbytes > 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_building_is_offered_too() -> None:
    pytest.importorskip("torch")
    assert find_spec("dspark_factory.factory") is not None
    assert callable(dspark_factory.build)
    assert isinstance(dspark_factory.Assembly, type)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dspark_factory.nothing  # noqa: B018


def test_errors_share_one_base() -> None:
    for name in LIGHT:
        value = getattr(dspark_factory, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, dspark_factory.DsparkError)
