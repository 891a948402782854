"""Rows of a sweep: one per job and batch size, from its records alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_factory.results import RECORD_NAME, Record, Status, read_record
from dspark_factory.results.record import RecordError
from dspark_factory.sweeps.calibration import Calibration, calibration_of
from dspark_factory.sweeps.effects import without_effect
from dspark_factory.sweeps.manifest import listed_jobs
from dspark_factory.sweeps.spread import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """What one job says about one batch size; jobs without measurements have one row.

    Attributes:
        job: the job's folder, relative to the sweep's.
        task: kind of task.
        status: how the job ended; ``running`` also of a job that was killed before it could say so.
        failure: why, where it did not end well.
        without_effect: knobs whose requested value is not the effective one, as sentences.
        overrides: what the job was asked for, in its order.
        device: accelerator, or platform.
        requests: batch size, in requests.
        num_draft_tokens: rows verified per request and step, the anchor included; ``None`` without speculation.
        tokens_per_second: of each round.
        baseline_tokens_per_second: of the same rounds without speculation, in the same job.
        accept_length: committed tokens per step and request, bonus included.
        accept_length_interval: its 95 % confidence interval over requests.
        conditional_acceptance: of each draft position, given that those before it were accepted.
        verify_milliseconds: of verify or decode steps.
        draft_milliseconds: of drafting a step.
        startup_seconds: of all stages from PLAN to FREEZE.
        nbytes: planned bytes.
        nbytes_by_provider: the same by provider.
        graph_nbytes: device memory that graphs hold.
        calibration: of the job's drafter by draft position; empty where it was not measured.
        environment: versions, platform and device of the job, as its record has them.
    """

    job: str
    task: str
    status: Status
    failure: str | None
    without_effect: tuple[str, ...]
    overrides: tuple[str, ...]
    device: str | None
    requests: int | None = None
    num_draft_tokens: int | None = None
    tokens_per_second: Spread | None = None
    baseline_tokens_per_second: Spread | None = None
    accept_length: float | None = None
    accept_length_interval: tuple[float, float] | None = None
    conditional_acceptance: tuple[float | None, ...] = ()
    verify_milliseconds: Spread | None = None
    draft_milliseconds: Spread | None = None
    startup_seconds: float | None = None
    nbytes: int | None = None
    nbytes_by_provider: dict[str, int] | None = None
    graph_nbytes: int | None = None
    calibration: tuple[Calibration, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the job ended well and every knob took effect."""
        return self.status is Status.OK and not self.without_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A job without a record that can be used, and why.

    Attributes:
        job: its folder, relative to the sweep's.
        reason: one line.
        state: ``unreadable`` or ``never started``.
    """

    job: str
    reason: str
    state: str = "unreadable"

    def __str__(self) -> str:
        return f"job {self.job} ({self.state}): {self.reason}"


def read_rows(folder: Path | str) -> tuple[list[SweepRow], list[Unreadable]]:
    """Rows of every record below ``folder``, jobs in natural order, and what could not be read.

    Raises:
        RecordError: the folder does not exist, or holds no record.
    """
    root = Path(folder)
    if not root.is_dir():
        raise RecordError(f"{root} is no folder; give the folder of a sweep")
    rows: list[SweepRow] = []
    unreadable: list[Unreadable] = []
    paths = sorted(root.rglob(RECORD_NAME), key=lambda path: _natural(path.parent.relative_to(root)))
    for path in paths:
        job = str(path.parent.relative_to(root))
        try:
            rows += rows_of(read_record(path), job)
        except RecordError as error:
            unreadable.append(Unreadable(job=job, reason=str(error)))
        except (TypeError, ValueError, AttributeError, KeyError) as error:  # values of other types than ours
            unreadable.append(Unreadable(job=job, reason=f"{path} holds values of the wrong type: {error}"))
    seen = {str(path.parent.relative_to(root)) for path in paths}
    unreadable += [
        Unreadable(job=job, reason="the sweep ended before it", state="never started")
        for job in listed_jobs(root)
        if job not in seen
    ]
    return rows, unreadable


def rows_of(record: Record, job: str) -> list[SweepRow]:
    """One row per batch size that the job measured, at least one."""
    providers: dict[str, int] = {}
    for buffer in record.buffers:
        providers[buffer.provider] = providers.get(buffer.provider, 0) + buffer.nbytes
    stages = [stage.seconds for stage in record.stages if stage.name.isupper()]
    common: dict[str, Any] = {
        "job": job,
        "task": record.task,
        "status": record.status,
        "failure": record.failure,
        "without_effect": tuple(without_effect(record)),
        "overrides": tuple(record.config.get("requested", ())),
        "device": record.environment.get("device") or record.environment.get("platform"),
        "num_draft_tokens": record.effective.get("num_draft_tokens"),
        "startup_seconds": sum(stages) if stages else None,
        "nbytes": record.nbytes,
        "nbytes_by_provider": providers or None,
        "graph_nbytes": record.effective.get("graph_nbytes"),
        "calibration": calibration_of(record.measurements.get("calibration")),
        "environment": record.environment,
    }
    _require_numbers(common, "num_draft_tokens", "startup_seconds", "nbytes", "graph_nbytes")
    batches = record.measurements.get("batches")
    if not isinstance(batches, list) or not batches:
        return [SweepRow(**common)]
    return [SweepRow(**common | _batch(batch)) for batch in batches]


def _require_numbers(values: dict[str, Any], *names: str) -> None:
    for name in names:
        value = values[name]
        if value is not None and not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}, no number")


def _batch(measured: dict[str, Any]) -> dict[str, Any]:
    interval = measured.get("accept_length_interval")
    found = {
        "requests": measured.get("requests"),
        "num_draft_tokens": measured.get("num_draft_tokens"),
        "tokens_per_second": Spread.of(measured.get("tokens_per_second")),
        "baseline_tokens_per_second": Spread.of(measured.get("baseline_tokens_per_second")),
        "accept_length": measured.get("accept_length"),
        "accept_length_interval": tuple(interval) if interval else None,
        "conditional_acceptance": tuple(measured.get("conditional_acceptance") or ()),
        "verify_milliseconds": Spread.of(measured.get("verify_milliseconds")),
        "draft_milliseconds": Spread.of(measured.get("draft_milliseconds")),
    }
    _require_numbers(found, "requests", "num_draft_tokens", "accept_length")
    return found


def _natural(path: Path) -> list[tuple[int, str]]:
    """Folders 2 before 10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in path.parts]
