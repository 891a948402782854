"""The capture lint: two watched runs of a step, and what a captured graph would break on or freeze."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from torch import Tensor, no_grad

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.capture_rules import FindingKind
from dspark_factory.pipeline.lint_run import Finding, OpFingerprint, WatchedRun, memory_addresses

__all__ = ["Finding", "FindingKind", "lint_step", "raise_on"]


def lint_step(
    step: Callable[[], None],
    stage_variants: Sequence[Callable[[], None]],
    *,
    known: Iterable[Tensor],
    watched: Mapping[str, Tensor] | None = None,
) -> list[Finding]:
    """Every reason why a captured graph of ``step`` would fail or go stale; empty means none was found.

    Runs the step once per variant, eagerly and for real, in the mode of a capture. Calls hidden in custom
    operators are not seen, and a Python value is only noticed if the variants make it change.

    Args:
        step: one eager step.
        stage_variants: at least two callables, each puts other host inputs of the same graph key in place.
        known: declared buffers, weights and module buffers; matched by memory, so views count.
        watched: tensors that must stay where they are, by name (``provider.attribute``). Read again after
            every run, so pass a mapping that looks the tensors up.

    Returns:
        Findings in the order they came up, one for each kind, provider and place.
    """
    if len(stage_variants) < 2:
        raise ValueError("the capture lint compares runs, so it needs at least two stage variants")
    known_memory = memory_addresses(known)
    first_places = _places(watched)
    findings: dict[tuple[str, str | None, str], Finding] = {}
    runs: list[WatchedRun] = []
    for stage in stage_variants:
        with no_grad():
            stage()
        run = WatchedRun(known_memory, runs[-1] if runs else None)
        finished = run.execute(step)
        found = [*run.findings, *_moved(first_places, _places(watched))]
        if runs and finished:
            found += _differences(runs[0].fingerprints, run.fingerprints)
        for finding in found:
            findings.setdefault((finding.kind, finding.provider, finding.where), finding)
        if not finished:
            break
        runs.append(run)
    return list(findings.values())


def raise_on(findings: Sequence[Finding]) -> None:
    """Raise ``CaptureError`` with all ``findings``, one line each; do nothing when there is none."""
    if findings:
        lines = "\n".join(f"  {finding}" for finding in findings)
        raise CaptureError(f"the step cannot be captured as it is, {len(findings)} findings:\n{lines}")


def _places(watched: Mapping[str, Tensor] | None) -> dict[str, tuple[object, ...]]:
    """Address and geometry of every watched tensor, as a graph would record them now."""
    return {
        name: (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        for name, tensor in (watched or {}).items()
    }


def _moved(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> Iterator[Finding]:
    for name, place in before.items():
        if after.get(name) != place:
            message = (
                "points at other memory than before the run; a captured graph keeps using the old address. "
                "Update it in place with copy_ or fill_, and never assign a new tensor"
            )
            yield Finding("rebound_buffer", name.partition(".")[0], name, message)


def _differences(first: Sequence[OpFingerprint], second: Sequence[OpFingerprint]) -> Iterator[Finding]:
    """What changed from one run to another, until they run different operators and cannot be compared."""
    for before, after in zip(first, second, strict=False):
        if before.func is not after.func:
            yield _python_value(after, f"{before.func} ran in one run and {after.func} in the other")
            return
        finding = _difference(before, after)
        if finding is not None:
            yield finding
    if len(first) != len(second):
        extra = max(first, second, key=len)[min(len(first), len(second))]
        yield _python_value(extra, f"{extra.func} ran in only one of two runs")


def _difference(before: OpFingerprint, after: OpFingerprint) -> Finding | None:
    if before.input_shapes != after.input_shapes:
        return None  # the consequence of an earlier difference
    if before.values != after.values:
        changes = [f"{a} became {b}" for a, b in zip(before.values, after.values, strict=False) if a != b]
        return _python_value(after, f"{after.func}: {', '.join(changes) or 'other arguments'}")
    if before.statics != after.statics:
        message = (
            f"{after.func} used other memory in two runs of the same bucket; a captured graph keeps using "
            "that of the capture. Update one buffer in place and never assign another"
        )
        return Finding("rebound_buffer", after.provider, after.where, message)
    if before.views != after.views:
        return _python_value(after, f"{after.func} used another part of a buffer")
    if before.output_shapes != after.output_shapes:
        shapes = f"{before.output_shapes} became {after.output_shapes}"
        message = f"{after.func} gave other shapes for other data ({shapes}); a captured graph has one shape"
        return Finding("data_dependent_shape", after.provider, after.where, message)
    return None


def _python_value(op: OpFingerprint, what: str) -> Finding:
    message = (
        f"a Python value changed between two runs of the same bucket: captured graphs freeze it ({what}). "
        "Read it from a staged buffer, or make it part of the graph key"
    )
    return Finding("python_value", op.provider, op.where, message)
