"""Every planted fault of a backend is named; a clean backend and the reference pass."""

from __future__ import annotations

import pytest

from dspark_factory.testing import BackendConformance
from dspark_factory.testing.backend import BACKEND_CHECKS
from dspark_factory.testing.case import BackendCase
from dspark_factory.testing.results import CheckResult, run_all
from tests.testing import faulty_backends as faulty

EVERY_AGREEMENT = {name for name in BACKEND_CHECKS if name.startswith("agrees_")}

PLANTED = [
    (faulty.DropsTheSink, EVERY_AGREEMENT, "agrees_on_sinks", "the sink's logit belongs in the denominator"),
    (faulty.ReadsSkippedLanes, EVERY_AGREEMENT, "agrees_on_short_lists", "a list ends after lens entries"),
    (faulty.WrongDtype, EVERY_AGREEMENT, "agrees_on_every_layer", "return the shape and dtype of q"),
    (faulty.RoundsOnTheWay, {"agrees_in_bfloat16"}, "agrees_in_bfloat16", "accumulate in fp32"),
    (
        faulty.AllocatesAWorkspace,
        {"workspaces_planned_equal_allocated", "captured_and_replayed"},
        "workspaces_planned_equal_allocated",
        "bind() allocates, it keeps sums",
    ),
    (
        faulty.OverwritesQueries,
        EVERY_AGREEMENT,
        "agrees_on_every_layer",
        "changes q, the KV or the key lists",
    ),
    (
        faulty.MoodyReasons,
        {"reasons_and_requests_pure"},
        "reasons_and_requests_pure",
        "reasons() is not pure",
    ),
]


def checked(backend: type[faulty.CleanBackend]) -> list[CheckResult]:
    plugin = faulty.planted_backend(backend)
    return run_all(BACKEND_CHECKS, [BackendCase(plugin=plugin, spec=plugin.spec())])


@pytest.mark.parametrize(
    ("backend", "allowed", "check", "phrase"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_fault_is_named_by_its_check(
    backend: type[faulty.CleanBackend], allowed: set[str], check: str, phrase: str
) -> None:
    found = {result.name: result.message for result in checked(backend) if not result.passed}
    assert check in found, found
    assert "'planted_backend'" in found[check]
    assert phrase in found[check]
    assert set(found) <= allowed | {"captured_and_replayed", "tokens_equal_the_reference"}, found


def test_a_backend_that_refuses_is_not_judged_by_what_it_does_not_serve() -> None:
    results = checked(faulty.RefusesEverything)
    assert all(result.passed for result in results)
    skipped = {result.name for result in results if result.skipped}
    assert skipped == set(BACKEND_CHECKS) - {"light_import", "reasons_and_requests_pure"}
    assert "head_dim=128 is not 7" in results[-1].message


class TestCleanBackend(BackendConformance):
    plugin = faulty.planted_backend(faulty.CleanBackend)
