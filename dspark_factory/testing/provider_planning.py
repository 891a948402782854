"""Checks of a buffer provider's gate and requests: no memory is allocated here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from dspark_factory.api import BufferRequest, Gate, Role
from dspark_factory.config.schema import Config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.plan import Plan
from dspark_factory.planning.resolve import resolve_dims
from dspark_factory.testing.case import ProviderCase
from dspark_factory.testing.geometry import CONTEXT_FACTOR, FULL, LONGER_CONTEXT, SITUATIONS, configuration
from dspark_factory.testing.light import refuse_torch
from dspark_factory.testing.results import CheckFailed, CheckNotRun

_ASKED = 3
"""How often a pure function is asked the same question."""


def light_import(case: ProviderCase) -> None:
    """The descriptor, the gate and the requests need no torch."""
    refuse_torch(case.plugin, case.spec, [(*base, *case.overrides) for base in SITUATIONS.values()])


def gate_answers_everywhere(case: ProviderCase) -> None:
    """The gate answers with a reason for speculation on, off and every candidate, and is on for one of them."""
    answers = [_gate(case, situation, dims) for situation, dims in _situations(case)]
    if not any(answer.enabled for answer in answers):
        reasons = sorted({answer.reason for answer in answers})
        raise CheckFailed(
            f"provider {case.name!r} is off in every configuration of the suite ({'; '.join(reasons)}); give "
            "options or overrides with which it is on"
        )


def gate_and_requests_pure(case: ProviderCase) -> None:
    """Equal dims give equal answers, from one instance and from another; options stay as they are."""
    for situation, dims in _situations(case):
        _answered(case, situation, dims)
        before = deepcopy(case.spec)
        instances = [provider := case.provider(), *([provider] * (_ASKED - 1)), case.provider()]
        gates = [item.gate(case.spec, replace(dims)) for item in instances]
        _all_equal(case, "gate()", situation, gates)
        if gates[0].enabled:
            _all_equal(
                case, "requests()", situation, [list(item.requests(case.spec, dims)) for item in instances]
            )
        if case.spec != before:
            case.spec = before
            raise CheckFailed(
                f"provider {case.name!r} changes its options while it plans; treat spec as given"
            )


def off_means_zero_bytes(case: ProviderCase) -> None:
    """Switched off, it plans no byte and leaves every other buffer as it is."""
    off = _planned(case, case.config(enabled=False))
    nbytes = off.nbytes_by_provider.get(case.name, 0)
    if nbytes or case.name in off.providers:
        raise CheckFailed(
            f"provider {case.name!r} plans {nbytes} bytes with enabled=false; plan in requests()"
        )
    if case.built_in:
        return
    without = case.plan(case.config_without())
    if off.nbytes != without.nbytes:
        raise CheckFailed(
            f"provider {case.name!r} is off, yet {off.nbytes - without.nbytes} bytes more are planned than without "
            "it; a buffer of another provider must not depend on it"
        )


def roles_declared(case: ProviderCase) -> None:
    """Every buffer has a role, and it is the role of the model that reads it."""
    for request in _requests(case, FULL):
        if not isinstance(request.role, Role):
            raise CheckFailed(
                f"provider {case.name!r} forgets the role of buffer {request.name!r} (it is {request.role!r}); give "
                "role=Role.TARGET or role=Role.DRAFT"
            )
        wanted = case.roles.get(request.name)
        if wanted is not None and wanted is not request.role:
            raise CheckFailed(
                f"provider {case.name!r} declares buffer {request.name!r} for the {request.role.value}, but "
                f"the {wanted.value} reads it; give role=Role.{wanted.name}"
            )


def capacity_declared(case: ProviderCase) -> None:
    """Extents that count requests, slots or rows cover the largest bucket and the largest candidate."""
    for situation, dims in _situations(case):
        if not _answered(case, situation, dims).enabled:
            continue
        needed = {
            "requests": (dims.max_batch_requests, "dims.max_batch_requests"),
            "slots": (dims.request_slots, "dims.request_slots"),
            "rows": (dims.max_batch_rows, "dims.max_batch_rows"),
        }
        for request in case.provider().requests(case.spec, dims):
            for extent in request.shape:
                size, source = needed.get(extent.unit, (0, ""))
                if extent.size < size:
                    raise CheckFailed(
                        f"provider {case.name!r}: buffer {request.name!r} holds {extent.size} {extent.unit}, "
                        f"the largest bucket needs {size} ({situation}); size it by {source}"
                    )


def no_growth_with_context(case: ProviderCase) -> None:
    """A context eight times as long costs no byte more, unless the suite is told that it may."""
    if case.grows_with_context:
        raise CheckNotRun("grows_with_context=True")
    short = _planned(case, case.config()).nbytes_by_provider.get(case.name, 0)
    longer = _planned(case, case.config((*FULL, LONGER_CONTEXT))).nbytes_by_provider.get(case.name, 0)
    if short != longer:
        raise CheckFailed(
            f"provider {case.name!r} grows with the context: {short} bytes become {longer} when "
            f"pipeline.context_length is {CONTEXT_FACTOR} times as long; size it by rows or requests, or declare "
            "grows_with_context = True"
        )


def names_unique(case: ProviderCase) -> None:
    """No other provider asks for a buffer of the same name, and every extent has a unit."""
    try:
        case.plan(case.config())
    except ConfigError as error:
        raise CheckFailed(f"provider {case.name!r} cannot be planned: {error}") from error
    for request in _requests(case, FULL):
        if not request.name.isidentifier() or not all(extent.unit for extent in request.shape):
            raise CheckFailed(
                f"provider {case.name!r}: buffer {request.name!r} needs a snake_case name and a unit for every "
                "extent; see dspark_factory.api.extents"
            )


def _situations(case: ProviderCase) -> Iterator[tuple[str, Dims]]:
    for name, base in SITUATIONS.items():
        yield name, resolve_dims(configuration((*base, *case.overrides)))


def _gate(case: ProviderCase, situation: str, dims: Dims) -> Gate:
    try:
        answer = case.provider().gate(case.spec, dims)
    except Exception as error:
        raise CheckFailed(
            f"provider {case.name!r}: gate() raises {type(error).__name__} with {situation}: {error}; answer "
            "Gate.off(reason) for what it cannot serve"
        ) from error
    if not isinstance(answer, Gate) or not answer.reason:
        raise CheckFailed(
            f"provider {case.name!r}: gate() gives {answer!r} with {situation}; answer Gate.on(reason) or "
            "Gate.off(reason)"
        )
    return answer


def _answered(case: ProviderCase, situation: str, dims: Dims) -> Gate:
    """The gate's answer for checks that are not about whether there is one."""
    try:
        return _gate(case, situation, dims)
    except CheckFailed as failure:
        raise CheckNotRun(f"its gate does not answer with {situation}") from failure


def _planned(case: ProviderCase, config: Config) -> Plan:
    """The plan for checks that are not about whether there is one."""
    try:
        return case.plan(config)
    except ConfigError as error:
        raise CheckNotRun(f"it cannot be planned: {error}") from error


def _requests(case: ProviderCase, base: tuple[str, ...]) -> Sequence[BufferRequest]:
    dims = resolve_dims(configuration((*base, *case.overrides)))
    provider = case.provider()
    gate = provider.gate(case.spec, dims)
    if not gate.enabled:
        raise CheckNotRun(f"its gate is off: {gate.reason}")
    return list(provider.requests(case.spec, dims))


def _all_equal(case: ProviderCase, function: str, situation: str, answers: Sequence[Any]) -> None:
    for answer in answers[1:]:
        if answer != answers[0]:
            raise CheckFailed(
                f"provider {case.name!r}: {function} is not pure, equal dims gave {answers[0]!r} and then "
                f"{answer!r} ({situation}); decide by spec and dims alone"
            )
