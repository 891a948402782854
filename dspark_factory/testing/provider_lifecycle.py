"""Checks of a buffer provider at work: built, prepared, replayed and closed on the shipped checkpoint."""

from __future__ import annotations

from dspark_factory.api import Role
from dspark_factory.errors import AddressChanged, ConfigError
from dspark_factory.pipeline.stages import Stage
from dspark_factory.planning.layout import PlannedBuffer
from dspark_factory.testing.case import ProviderCase
from dspark_factory.testing.registration import GUARD_PREFIX
from dspark_factory.testing.rehearsal import REPLAY, Rehearsal, StepSeen
from dspark_factory.testing.results import CheckFailed, CheckNotRun


def planned_equals_allocated(case: ProviderCase) -> None:
    """The arena holds what was asked for, and ``bind`` keeps views only."""
    life = _on(case)
    if life.failure is not None and life.failure.stage == Stage.CONSTRUCT.value:
        raise CheckFailed(f"provider {case.name!r} cannot be constructed: {life.failure}")
    for buffer in _own(case, life):
        if life.sizes[buffer.name] != (buffer.nbytes, buffer.sizes):
            raise CheckFailed(
                f"provider {case.name!r}: buffer {buffer.name!r} was planned as {buffer.nbytes} bytes "
                f"{buffer.sizes} and allocated as {life.sizes[buffer.name]}"
            )
    if life.foreign:
        raise CheckFailed(
            f"provider {case.name!r}: bind() allocates, it keeps {', '.join(life.foreign)} outside the arena; "
            "declare it in requests() and keep the view"
        )


def runs_at_every_size(case: ProviderCase) -> None:
    """Every bucket and candidate runs with all its rows, with fewer, and with padding requests."""
    life = _on(case)
    failure = life.failure
    if failure is not None and (
        failure.stage == Stage.AUTOTUNE.value
        or (failure.stage.startswith(REPLAY) and failure.kind != AddressChanged.__name__)
    ):
        raise CheckFailed(
            f"provider {case.name!r} does not hold at every bucket and draft-token candidate: {failure}; size its "
            "buffers by dims.max_batch_requests, dims.max_batch_rows and dims.max_width"
        )
    _whole(case, life)


def capture_lint(case: ProviderCase) -> None:
    """Warm-up, the capture lint and every capture pass."""
    life = _on(case)
    stages = (Stage.WARMUP.value, Stage.CHECK.value, Stage.CAPTURE.value, Stage.FREEZE.value)
    failure = life.failure
    if failure is not None and failure.stage in stages and failure.kind != AddressChanged.__name__:
        raise CheckFailed(f"provider {case.name!r} cannot be captured: {failure}")
    if failure is not None and failure.kind != AddressChanged.__name__ and not life.steps:
        _whole(case, life)


def addresses_stay(case: ProviderCase) -> None:
    """No buffer moves between CONSTRUCT and the last replay."""
    life = _on(case)
    if life.failure is not None and life.failure.kind == AddressChanged.__name__:
        raise CheckFailed(f"provider {case.name!r} moves a buffer: {life.failure}")
    _whole(case, life)


def buffers_used_by_their_role(case: ProviderCase) -> None:
    """A target's baked buffer is used by a target step, a draft's by none."""
    life = _on(case)
    _whole(case, life)
    for buffer in _own(case, life):
        used = buffer.name in life.used
        if buffer.role is Role.DRAFT and used:
            raise CheckFailed(
                f"provider {case.name!r}: buffer {buffer.name!r} is declared for the draft, but the target's step "
                "uses it; give role=Role.TARGET"
            )
        if buffer.role is Role.TARGET and buffer.baked and not used and not case.plugin.on_demand:
            raise CheckFailed(
                f"provider {case.name!r}: no decode or verify step of the target uses buffer {buffer.name!r}; "
                "give role=Role.DRAFT if the draft reads it, baked=False if no graph does, or name the plugin that "
                "reads it in companions"
            )


def stays_in_its_rows(case: ProviderCase) -> None:
    """Guard zones around its buffers are as they were after every replay."""
    life = _on(case)
    if life.damage:
        raise CheckFailed(
            f"provider {case.name!r} writes past its rows, {'; '.join(life.damage)}; write inside the views that "
            "bind() got, and send padding to the scratch slot"
        )
    _whole(case, life)


def leaves_others_alone(case: ProviderCase) -> None:
    """Tokens, accept lengths, KV and every other buffer equal those of the same steps without it, bit for bit."""
    life = _on(case)
    _whole(case, life)
    if case.built_in:
        raise CheckNotRun("built in: there is no assembly without it")
    baseline = case.baseline
    if baseline.failure is not None:
        raise CheckNotRun(f"the same steps fail without it: {baseline.failure}")
    own = {buffer.name for buffer in _own(case, life)}
    for with_it, without in zip(life.steps, baseline.steps, strict=True):
        changed = _differing(with_it, without, own)
        if changed:
            raise CheckFailed(
                f"provider {case.name!r} changes what is not its own: after {with_it.key}, {', '.join(changed)} "
                "differ from the same step without it; write to its own buffers only"
            )


def replay_equals_the_step(case: ProviderCase) -> None:
    """Graphs leave every buffer as running the step does, in another assembly built the same way."""
    life = _on(case)
    _whole(case, life)
    again = case.eager
    if again.failure is not None:
        raise CheckFailed(f"provider {case.name!r} fails when it is built once more: {again.failure}")
    for graph, step in zip(life.steps, again.steps, strict=True):
        changed = _differing(graph, step, set())
        if changed:
            raise CheckFailed(
                f"provider {case.name!r}: a replay of {graph.key} leaves {', '.join(changed)} other than running the "
                "step does; a Python value was frozen in the graph, or state is left from another build"
            )


def memory_given_back(case: ProviderCase) -> None:
    """Closing releases the arena, however often it is built."""
    life = _on(case)
    _whole(case, life)
    if not (life.released and case.eager.released):
        raise CheckFailed(
            f"provider {case.name!r} keeps the arena's memory after close(); keep views in what bind() returns, "
            "never in a module, a class or the provider"
        )


def _on(case: ProviderCase) -> Rehearsal:
    life = case.captured
    if life.plan is None and life.failure is not None and life.failure.kind == ConfigError.__name__:
        raise CheckNotRun(f"it cannot be planned: {life.failure.message}")
    if life.plan is not None and case.name not in life.plan.providers:
        raise CheckNotRun(f"its gate is off: {life.plan.gates[case.name].reason}")
    return life


def _whole(case: ProviderCase, life: Rehearsal) -> None:
    """Another check reports a failure; what follows from it is not reported again."""
    if life.failure is not None:
        raise CheckNotRun(f"{case.name!r} fails earlier, in {life.failure.stage}")


def _own(case: ProviderCase, life: Rehearsal) -> list[PlannedBuffer]:
    buffers = life.plan.buffers if life.plan else ()
    return [
        buffer
        for buffer in buffers
        if buffer.provider == case.name and not buffer.name.startswith(GUARD_PREFIX)
    ]


def _differing(first: StepSeen, second: StepSeen, own: set[str]) -> list[str]:
    names = [
        name
        for name, digest in second.digests.items()
        if name not in own and first.digests.get(name) != digest
    ]
    return names if first.tokens == second.tokens else ["committed tokens", *names]
