"""Every planted fault is named by the check that is meant for it, and by no check that has nothing to do with it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dspark_factory.testing.case import ProviderCase
from dspark_factory.testing.provider import PROVIDER_CHECKS
from dspark_factory.testing.results import CheckResult, run_all
from tests.testing import faulty_providers as faulty


@dataclass(frozen=True)
class Planted:
    """A fault: who has it, which checks fail, and what the first of them says."""

    provider: type[faulty.Clean]
    checks: tuple[str, ...]
    phrases: tuple[str, ...]


PLANTED = [
    Planted(
        faulty.AllocatesLate, ("capture_lint",), ("late_allocation", "faulty_providers.py", "Declare it in")
    ),
    Planted(
        faulty.AllocatesUnderInferenceMode,
        ("capture_lint",),
        ("first made inside inference mode", "faulty_providers.py", "Declare it in"),
    ),
    Planted(
        faulty.AllocatesInBind,
        ("planned_equals_allocated", "capture_lint"),
        ("bind() allocates", "seen (", "requests()"),
    ),
    Planted(faulty.Rebinds, ("capture_lint",), ("rebound_buffer",)),
    Planted(faulty.MovesItsBuffer, ("addresses_stay",), ("seen_tokens", "never rebind")),
    Planted(faulty.Syncs, ("capture_lint",), ("host_sync", "faulty_providers.py")),
    Planted(
        faulty.GrowsWithTheContext,
        ("no_growth_with_context",),
        ("grows with the context", "8 times", "grows_with_context = True"),
    ),
    Planted(
        faulty.WrongCapacity,
        ("capacity_declared", "runs_at_every_size"),
        ("holds 6 rows", "needs 12", "dims.max_batch_rows"),
    ),
    Planted(
        faulty.WrongCapacityUnderAnotherUnit,
        ("runs_at_every_size",),
        ("every bucket and draft-token candidate", "dims.max_batch_rows"),
    ),
    Planted(faulty.ChangesAPythonValue, ("capture_lint",), ("python_value", "captured graphs freeze it")),
    Planted(
        faulty.FreezesARareValue, ("replay_equals_the_step",), ("seen_tokens", "a Python value was frozen")
    ),
    Planted(
        faulty.WritesPastItsRows, ("stays_in_its_rows",), ("past its rows", "behind buffer 'seen_tokens'")
    ),
    Planted(
        faulty.WritesOthersBuffers, ("leaves_others_alone",), ("accept_lens", "write to its own buffers only")
    ),
    Planted(faulty.ImpureGate, ("gate_and_requests_pure",), ("gate() is not pure", "by spec and dims alone")),
    Planted(faulty.ImpureRequests, ("gate_and_requests_pure",), ("requests() is not pure",)),
    Planted(
        faulty.RaisingGate,
        ("light_import", "gate_answers_everywhere"),
        ("cannot be planned", "NoneType"),
    ),
    Planted(faulty.ForgetsARole, ("roles_declared",), ("forgets the role", "seen_tokens", "Role.DRAFT")),
    Planted(
        faulty.WrongRole, ("buffers_used_by_their_role",), ("draft_tokens", "role=Role.DRAFT", "baked=False")
    ),
    Planted(faulty.NeedsTorchToPlan, ("light_import",), ("requests() imports torch",)),
    Planted(faulty.KeepsMemoryAfterClose, ("memory_given_back",), ("after close()",)),
]


def failures(provider: type[faulty.Clean]) -> dict[str, CheckResult]:
    plugin = faulty.planted(provider)
    results = run_all(PROVIDER_CHECKS, [ProviderCase(plugin=plugin, spec=plugin.spec())])
    return {result.name: result for result in results if not result.passed}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.provider.__name__)
def test_a_planted_fault_is_named_by_its_check_and_by_no_other(fault: Planted) -> None:
    found = failures(fault.provider)
    assert tuple(found) == fault.checks, found
    message = found[fault.checks[0]].message
    assert "'planted'" in message
    for phrase in fault.phrases:
        assert phrase in message


def test_a_clean_provider_passes_every_check() -> None:
    plugin = faulty.planted(faulty.Clean)
    results = run_all(PROVIDER_CHECKS, [ProviderCase(plugin=plugin, spec=plugin.spec())])
    assert [result for result in results if not result.passed or result.skipped] == []


def test_a_name_that_another_provider_has_is_refused() -> None:
    found = failures(faulty.TakesAName)
    assert tuple(found) == ("names_unique",)
    assert "'accept_lens' is asked for by" in found["names_unique"].message
