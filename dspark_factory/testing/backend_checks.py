"""Checks of an attention backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from dspark_factory.api import Role
from dspark_factory.memory.arena import Arena
from dspark_factory.planning.resolve import resolve_dims
from dspark_factory.testing.backend_agreement import (
    Bench,
    Problem,
    with_empty_rows,
    with_short_lists,
    with_sinks,
)
from dspark_factory.testing.case import BackendCase
from dspark_factory.testing.geometry import SITUATIONS, configuration
from dspark_factory.testing.light import refuse_torch
from dspark_factory.testing.memory import foreign_tensors
from dspark_factory.testing.rehearsal import Rehearsal
from dspark_factory.testing.results import CheckFailed, CheckNotRun

_SINKS = (-20.0, 0.0, 8.0)
"""Logits that hardly count, count like a key, and take most of the weight."""

_HALF = "device.dtype=bfloat16"


def light_import(case: BackendCase) -> None:
    """The descriptor, the reasons and the requests need no torch."""
    refuse_torch(case.plugin, case.spec, [(*base, *case.overrides) for base in SITUATIONS.values()])


def reasons_and_requests_pure(case: BackendCase) -> None:
    """Equal dims give equal answers, from one instance and from another."""
    for situation, base in SITUATIONS.items():
        dims = resolve_dims(configuration((*base, *case.overrides)))
        instances = [backend := case.backend(), backend, case.backend()]
        reasons = [list(item.reasons(replace(dims))) for item in instances]
        answers: list[tuple[str, Sequence[object]]] = [("reasons()", reasons)]
        if not reasons[0]:
            answers.append(("requests()", [list(item.requests(case.spec, dims)) for item in instances]))
        for function, given in answers:
            if any(answer != given[0] for answer in given):
                raise CheckFailed(
                    f"backend {case.name!r}: {function} is not pure, equal dims gave {given} ({situation}); decide "
                    "by spec and dims alone"
                )


def workspaces_planned_equal_allocated(case: BackendCase) -> None:
    """Workspaces lie in the arena, and ``bind`` keeps views only."""
    planned = case.plan(case.config())
    arena = Arena(planned, torch.device(planned.dims.device_kind))
    backend = case.backend()
    backend.bind(case.spec, arena.buffers, planned.dims)
    for buffer in planned.buffers:
        view = arena.buffers[buffer.name]
        own = buffer.provider == f"backend.{case.name}"
        if own and (view.nbytes, tuple(view.shape)) != (buffer.nbytes, buffer.sizes):
            raise CheckFailed(
                f"backend {case.name!r}: workspace {buffer.name!r} was planned as {buffer.nbytes} bytes and allocated "
                f"as {view.nbytes}"
            )
        if own and not isinstance(buffer.role, Role):
            raise CheckFailed(
                f"backend {case.name!r}: workspace {buffer.name!r} has no role; give role=Role.TARGET"
            )
    foreign = foreign_tensors(backend, arena)
    if foreign:
        raise CheckFailed(
            f"backend {case.name!r}: bind() allocates, it keeps {', '.join(foreign)} outside the arena; declare it in "
            "requests() and keep the view"
        )


def agrees_on_every_layer(case: BackendCase) -> None:
    """Sliding-window, sparse and heavily compressed layers, uniform and ragged rows, in fp32."""
    _compare(case, [lambda item: item], "attend over every listed key, accumulate in fp32")


def agrees_on_sinks(case: BackendCase) -> None:
    """The sink is in the denominator, whatever its size."""
    variants = [lambda item, value=value: with_sinks(item, value) for value in _SINKS]
    _compare(case, variants, "the sink's logit belongs in the denominator of every head, and nowhere else")


def agrees_on_short_lists(case: BackendCase) -> None:
    """What lies behind a row's list counts for nothing."""
    _compare(
        case, [with_short_lists], "a list ends after lens entries: do not read the -1 behind it as a row"
    )


def agrees_on_empty_rows(case: BackendCase) -> None:
    """A row without any key is zero."""
    bench = Bench(case)
    for item in bench.problems():
        empty = with_empty_rows(item)
        got = bench.compare(empty, "a row without any key is zero")
        if got[::2].any():
            raise CheckFailed(f"backend {case.name!r}: a row without any key is not zero ({item.name})")


def agrees_in_bfloat16(case: BackendCase) -> None:
    """The same with bfloat16 queries and pools: accumulation stays in fp32."""
    _compare(
        case, [lambda item: item, with_short_lists], "accumulate in fp32 and round once, at the end", _HALF
    )


def captured_and_replayed(case: BackendCase) -> None:
    """The whole model on this backend passes every stage and the script of replays."""
    life = case.captured
    if life.failure is not None:
        raise CheckFailed(f"backend {case.name!r} fails in {life.failure}")


def tokens_equal_the_reference(case: BackendCase) -> None:
    """Greedy tokens and accept lengths of the whole shipped model are those of the reference backend."""
    life, baseline = case.captured, case.baseline
    _whole(case, life)
    if baseline.failure is not None:
        raise CheckNotRun(f"the reference fails as well: {baseline.failure}")
    for own, reference in zip(life.steps, baseline.steps, strict=True):
        if own.tokens != reference.tokens:
            raise CheckFailed(
                f"backend {case.name!r} commits {own.tokens} in a step of {own.key}, the reference {reference.tokens}"
            )


def memory_given_back(case: BackendCase) -> None:
    """Closing releases the arena."""
    _whole(case, case.captured)
    if not case.captured.released:
        raise CheckFailed(
            f"backend {case.name!r} keeps the arena's memory after close(); keep views in the instance only"
        )


def _compare(
    case: BackendCase, variants: Sequence[Callable[[Problem], Problem]], what: str, *more: str
) -> None:
    bench = Bench(case, *more)
    for item in bench.problems():
        for variant in variants:
            bench.compare(variant(item), what)


def _whole(case: BackendCase, life: Rehearsal) -> None:
    if life.failure is not None:
        raise CheckNotRun(f"{case.name!r} fails earlier, in {life.failure.stage}")
