"""The record while its job runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dspark_factory.results.environment import environment
from dspark_factory.results.fingerprint import fingerprint
from dspark_factory.results.record import (
    SCHEMA_VERSION,
    BufferRecord,
    GateRecord,
    Record,
    StageRecord,
    Status,
    plain,
)

if TYPE_CHECKING:
    from dspark_factory.config.schema import Config
    from dspark_factory.planning.plan import Plan


class RecordBuilder:
    """Collects what a task has to say; the command line finishes and writes it.

    A task assigns the plain attributes and calls the methods in any order. Every value ends as JSON, see
    :func:`~dspark_factory.results.record.plain`.

    Attributes:
        effective: values that the configuration resolved to; :meth:`add_plan` fills in the geometry.
        measurements: whatever else was measured.
        lossless: whether speculation changed nothing; ``None`` when it was not compared.
        accept_length: committed tokens per verify step and request, bonus included.
        tokens_per_second: decode speed by contender.
        device_name: name of the accelerator or CPU that did the work.
    """

    def __init__(self, task: str, *, requested: Sequence[str] = ()) -> None:
        self.task = task
        self.effective: dict[str, Any] = {}
        self.measurements: dict[str, Any] = {}
        self.lossless: bool | None = None
        self.accept_length: float | None = None
        self.tokens_per_second: dict[str, float | None] | None = None
        self.device_name: str | None = None
        self._requested = list(requested)
        self._full: dict[str, Any] | None = None
        self._fingerprint: str | None = None
        self._stages: list[StageRecord] = []
        self._buffers: tuple[BufferRecord, ...] = ()
        self._nbytes: int | None = None
        self._gates: dict[str, GateRecord] = {}
        self._graph_keys: tuple[str, ...] = ()
        self._started_at = datetime.now(UTC)
        self._started = time.perf_counter()

    def set_config(self, config: Config) -> None:
        """Keep the whole configuration; the command line calls this before the task runs."""
        self.task = config.task.kind
        self._full = plain(asdict(config))
        self._fingerprint = fingerprint(config)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a part of the job; it is recorded even if it raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add_stage(name, time.perf_counter() - started)

    def add_stage(self, name: str, seconds: float) -> None:
        """Record a part of the job that was timed elsewhere."""
        self._stages.append(StageRecord(name=name, seconds=seconds))

    def add_plan(self, plan: Plan) -> None:
        """Record the plan: buffers, bytes, gates, graph keys, KV cost, notes and the effective geometry."""
        self._buffers = tuple(
            BufferRecord(
                name=buffer.name,
                provider=buffer.provider,
                role=buffer.role.value,
                shape=buffer.sizes,
                units=tuple(extent.unit for extent in buffer.shape),
                dtype=buffer.dtype.value,
                nbytes=buffer.nbytes,
            )
            for buffer in plan.buffers
        )
        self._nbytes = plan.nbytes
        self._gates = {
            name: GateRecord(enabled=gate.enabled, reason=gate.reason) for name, gate in plan.gates.items()
        }
        self._graph_keys = tuple(str(key) for key in plan.graph_keys)
        self.effective = _geometry(plan) | self.effective
        self.measurements["kv"] = asdict(plan.kv)
        self.measurements["notes"] = list(plan.notes)

    def finish(self, status: Status = Status.OK, failure: str | None = None) -> Record:
        """The record as it stands; further calls give a later state of the same job."""
        known = environment()
        if self.device_name is not None:
            known["device"] = self.device_name
        return Record(
            schema_version=SCHEMA_VERSION,
            task=self.task,
            status=status,
            failure=failure,
            config={"requested": self._requested, "full": self._full, "fingerprint": self._fingerprint},
            effective=plain(self.effective),
            environment=known,
            started_at=self._started_at.isoformat(timespec="milliseconds"),
            seconds=time.perf_counter() - self._started,
            stages=tuple(self._stages),
            buffers=self._buffers,
            nbytes=self._nbytes,
            gates=dict(self._gates),
            graph_keys=self._graph_keys,
            lossless=plain(self.lossless),
            accept_length=plain(self.accept_length),
            tokens_per_second=plain(self.tokens_per_second),
            measurements=plain(self.measurements),
        )


def _geometry(plan: Plan) -> dict[str, Any]:
    dims = plan.dims
    return {
        "speculation": dims.speculation,
        "num_draft_tokens": dims.num_draft_tokens,
        "block_size": dims.block_size,
        "verify_widths": list(dims.verify_widths),
        "verify_layout": ("ragged" if dims.ragged else "uniform") if dims.speculation else None,
        "backend": plan.backend,
        "providers": list(plan.providers),
        "device": dims.device_kind,
        "dtype": dims.dtype.value,
        "kv_dtype": dims.kv_dtype.value,
        "fused_kernels": dims.fused_kernels,
        "max_requests": dims.max_requests,
        "context_length": dims.context_length,
        "capture_requests": list(dims.capture_requests),
        "extend_rows": dims.extend_rows,
        "kv_pages": dims.kv_pages,
        "sampling": dims.sampling,
        "block_nbytes": plan.block_nbytes,
        "staged_nbytes": plan.staged_nbytes,
        "graph_nbytes_estimate": plan.graph_nbytes_estimate,
    }
