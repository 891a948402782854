"""Gates and requests are pure: the same question has the same answer, and asks for nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dspark_factory.config import load_config
from dspark_factory.config.schema import Config
from dspark_factory.planning.plan import plan
from dspark_factory.planning.resolve import resolve_dims
from dspark_factory.registry import backend_plugins, buffer_plugins, load_object

CONFIGS = [
    ["speculative=off"],
    ["model=v4_flash", "speculative=dspark", "speculative.verify_layout=ragged", "workload.temperature=1"],
]


@pytest.fixture(scope="module", params=CONFIGS, ids=["off", "all on"])
def config(request: pytest.FixtureRequest) -> Config:
    return load_config(request.param)


@pytest.mark.parametrize("name", list(buffer_plugins))
def test_a_provider_answers_the_same_twice(name: str, config: Config) -> None:
    dims, plugin = resolve_dims(config), buffer_plugins[name]
    spec = config.buffers[name]
    first, second = (load_object(plugin.provider)() for _ in range(2))
    assert first.gate(spec, dims) == first.gate(spec, dims) == second.gate(spec, dims)
    assert first.gate(spec, dims).reason
    if first.gate(spec, dims).enabled:
        assert list(first.requests(spec, dims)) == list(first.requests(spec, dims))
        assert list(first.requests(spec, dims)) == list(second.requests(spec, dims))


@pytest.mark.parametrize("name", list(backend_plugins))
def test_a_backend_answers_the_same_twice(name: str, config: Config) -> None:
    dims, plugin = resolve_dims(config), backend_plugins[name]
    backend = load_object(plugin.backend)()
    assert list(backend.reasons(dims)) == list(backend.reasons(dims))
    if not backend.reasons(dims):
        spec = plugin.spec()
        assert list(backend.requests(spec, dims)) == list(backend.requests(spec, dims))


def test_two_plans_of_one_configuration_are_equal(config: Config) -> None:
    assert plan(config) == plan(config)


def test_buffer_names_and_units_are_given(config: Config) -> None:
    result = plan(config)
    names = [buffer.name for buffer in result.buffers]
    assert len(set(names)) == len(names)
    for buffer in result.buffers:
        assert buffer.shape
        assert all(extent.unit and extent.size > 0 for extent in buffer.shape), buffer


def test_planning_imports_no_torch() -> None:
    code = (
        "import sys; from dspark_factory import load_config, plan;"
        "plan(load_config(['model=v4_flash', 'speculative=dspark', 'workload.temperature=1']));"
        "assert not {'torch', 'transformers'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
