"""The record of one job: a versioned schema of plain values, written as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any

from dspark_factory.errors import DsparkError

SCHEMA_VERSION = 1
"""Raised whenever a key changes its meaning or goes away; readers refuse newer versions."""


class Status(Enum):
    """How a job ended."""

    OK = "ok"
    FAILED = "failed"
    """It ran and broke; ``failure`` says how."""
    REFUSED = "refused"
    """Its configuration cannot be used; ``failure`` holds the reasons."""
    RUNNING = "running"
    """It began, and has not said how it ended: it runs still, or was killed."""
    KILLED = "killed"
    """Its process ended without a word; ``failure`` names the signal or exit status."""


class RecordError(DsparkError):
    """A record cannot be read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """A named part of the job and its wall time."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRecord:
    """One planned buffer; ``units`` names what each entry of ``shape`` counts."""

    name: str
    provider: str
    role: str
    shape: tuple[int, ...]
    units: tuple[str, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord:
    """Whether a feature is on, and why."""

    enabled: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that is known about one job.

    Attributes:
        schema_version: version of these keys.
        task: registered name of the task.
        status: how it ended.
        failure: what went wrong, one reason per line; ``None`` when nothing did.
        config: ``requested``, the overrides as given, ``full``, the whole configuration, and ``fingerprint``, equal for
            jobs that would measure the same.
        effective: values that the configuration resolved to.
        environment: versions, platform, CPU count and, where a task set it, the device.
        started_at: UTC, ISO 8601.
        seconds: wall time of the job.
        stages: parts of the job in the order in which they ended.
        buffers: every planned buffer in layout order.
        nbytes: sum over ``buffers``; ``None`` when nothing was planned.
        gates: feature or provider → on or off, with the reason.
        graph_keys: names of the graphs to capture, largest first.
        lossless: whether speculation changed nothing; ``None`` when it was not compared.
        accept_length: committed tokens per verify step and request, bonus included.
        tokens_per_second: decode speed by contender.
        measurements: everything else that a task measured.
    """

    schema_version: int
    task: str
    status: Status
    failure: str | None
    config: dict[str, Any]
    effective: dict[str, Any]
    environment: dict[str, Any]
    started_at: str
    seconds: float
    stages: tuple[StageRecord, ...]
    buffers: tuple[BufferRecord, ...]
    nbytes: int | None
    gates: dict[str, GateRecord]
    graph_keys: tuple[str, ...]
    lossless: bool | None
    accept_length: float | None
    tokens_per_second: dict[str, float | None] | None
    measurements: dict[str, Any]

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready values in the order of the schema; no NaN and no infinity."""
        return plain(asdict(self))

    @staticmethod
    def from_plain(values: dict[str, Any]) -> Record:
        """The inverse of :meth:`to_plain`; keys that this version does not know are dropped.

        Raises:
            RecordError: the version is newer than this one, or a key is missing or malformed.
        """
        version = values.get("schema_version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise RecordError("no record: it has no schema_version")
        if version > SCHEMA_VERSION:
            raise RecordError(
                f"it has schema version {version} and this version of dspark-factory reads up to "
                f"{SCHEMA_VERSION}; upgrade dspark-factory"
            )
        missing = [item.name for item in fields(Record) if item.name not in values]
        if missing:
            raise RecordError(f"no record of schema version {version}: it lacks {', '.join(missing)}")
        known = {item.name: values[item.name] for item in fields(Record)}
        try:
            return Record(**known | _nested(known))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise RecordError(f"no record of schema version {version}: {error}") from error


def _nested(known: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": Status(known["status"]),
        "stages": tuple(StageRecord(**item) for item in known["stages"]),
        "buffers": tuple(
            BufferRecord(**item | {"shape": tuple(item["shape"]), "units": tuple(item["units"])})
            for item in known["buffers"]
        ),
        "gates": {name: GateRecord(**item) for name, item in known["gates"].items()},
        "graph_keys": tuple(known["graph_keys"]),
    }


def plain(value: Any) -> Any:
    """JSON-ready form of a value: enums by value, paths as text, NaN and infinity as ``None``.

    Whatever has no such form is recorded by its ``repr``, because losing a whole record is worse.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return plain(value.item())
    return repr(value)
