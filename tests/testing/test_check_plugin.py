"""The suites outside pytest, on the plugins that the project ships."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dspark_factory.errors import PluginError
from dspark_factory.registry import buffer_plugins
from dspark_factory.testing import check_plugin
from dspark_factory.testing.backend import BACKEND_CHECKS, BackendConformance
from dspark_factory.testing.provider import PROVIDER_CHECKS, ProviderConformance


@pytest.mark.parametrize("name", ["kv_pools", "extend_start_loc", "logits"])
def test_a_built_in_provider_passes_its_checks(name: str) -> None:
    order = list(buffer_plugins)
    overrides = ["buffers.kv_pools.enabled=true"]
    results = check_plugin(name, overrides=overrides)
    assert [result.name for result in results] == list(PROVIDER_CHECKS)
    allowed = {"no_growth_with_context"} if name == "kv_pools" else set()
    assert {result.name for result in results if not result.passed} == allowed
    assert list(buffer_plugins) == order


def test_the_reference_backend_passes_its_checks() -> None:
    results = check_plugin("reference")
    assert [result.name for result in results] == list(BACKEND_CHECKS)
    assert all(result.passed and not result.skipped for result in results), results


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(PluginError, match="did you mean 'accept_lens'"):
        check_plugin("accept_len")


def test_every_check_has_a_test_in_its_suite() -> None:
    for suite, checks in ((ProviderConformance, PROVIDER_CHECKS), (BackendConformance, BACKEND_CHECKS)):
        called: list[str] = []
        recording = type("Recording", (suite,), {"_check": lambda self, name: called.append(name)})()  # noqa: B023
        for name in dir(suite):
            if name.startswith("test_"):
                getattr(recording, name)()
        assert sorted(called) == sorted(checks)


def test_the_suites_need_no_pytest() -> None:
    code = "import sys, dspark_factory.testing; assert 'pytest' not in sys.modules, 'pytest was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
