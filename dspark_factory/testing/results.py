"""What a check says: nothing when it holds, a message with what to change when it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from unittest import SkipTest

CaseT = TypeVar("CaseT")


class CheckFailed(AssertionError):
    """A plugin breaks the contract; the message names the plugin and what to change."""


class CheckNotRun(SkipTest):
    """A check says nothing about this plugin, or another check has to pass first."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of one check.

    Attributes:
        name: of the check; with several specs, of the first that fails it.
        passed: false if the plugin breaks the contract.
        message: what is wrong and what to change, or why the check did not run; empty otherwise.
        skipped: whether the check did not run; ``passed`` is true then, because nothing was found.
    """

    name: str
    passed: bool
    message: str = ""
    skipped: bool = False


def run_over(check: Callable[[CaseT], None], cases: Sequence[CaseT]) -> None:
    """Run ``check`` on every case.

    Raises:
        CheckFailed: the first failure.
        CheckNotRun: it ran on no case; the first reason.
    """
    reasons: list[CheckNotRun] = []
    for case in cases:
        try:
            check(case)
        except CheckNotRun as reason:
            reasons.append(reason)
    if reasons and len(reasons) == len(cases):
        raise reasons[0]


def run_all(checks: Mapping[str, Callable[[CaseT], None]], cases: Sequence[CaseT]) -> list[CheckResult]:
    """Every check by name on every case, in order; an unexpected error is a failure too."""
    results = []
    for name, check in checks.items():
        try:
            run_over(check, cases)
            results.append(CheckResult(name, passed=True))
        except CheckNotRun as reason:
            results.append(CheckResult(name, passed=True, message=f"not run: {reason}", skipped=True))
        except CheckFailed as failure:
            results.append(CheckResult(name, passed=False, message=str(failure)))
        except Exception as error:
            message = f"the check itself met {type(error).__name__}: {error}"
            results.append(CheckResult(name, passed=False, message=message))
    return results
