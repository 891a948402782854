"""Every error the factory raises on purpose; each message says what is wrong, where, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DsparkError(Exception):
    """Base of all errors that the factory raises on purpose. Survives a trip to another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, dict(vars(self)))


def _restored(kind: type[DsparkError], arguments: tuple[Any, ...], state: dict[str, Any]) -> DsparkError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(state)
    return error


class ConfigError(DsparkError):
    """The configuration cannot be used; ``reasons`` holds every reason, one line each."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n".join(self.reasons))


class PluginError(DsparkError):
    """A plugin cannot be registered or loaded."""


class FeatureDisabled(DsparkError):
    """A buffer was used whose gate is off."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"buffer {name!r} does not exist because it is off: {reason}")


class AllocationAfterSeal(DsparkError):
    """A provider asked for memory after CONSTRUCT."""

    def __init__(self, provider: str, name: str) -> None:
        self.provider = provider
        super().__init__(
            f"provider {provider!r} asked for buffer {name!r} after the arena was sealed; "
            "declare it in requests() so that CONSTRUCT allocates it"
        )


class CapacityError(DsparkError):
    """A view larger than a buffer's capacity was asked for."""


class StageOrderError(DsparkError):
    """A pipeline stage was asked for out of order."""

    def __init__(self, now: str, wanted: str, hint: str) -> None:
        self.now, self.wanted = now, wanted
        super().__init__(f"the pipeline is at {now} and cannot run {wanted}: {hint}")


class CaptureError(DsparkError):
    """A step cannot be captured; the message names provider and place."""


class AddressChanged(CaptureError):
    """A buffer no longer lies where a graph recorded it."""


class NoBucket(DsparkError):
    """A batch fits no captured bucket and the policy is ``error``."""


class BatchError(DsparkError):
    """A batch is malformed; raised before anything is staged."""


class CheckpointError(DsparkError):
    """A checkpoint folder cannot be used."""


class TaskError(DsparkError):
    """A task cannot run with this configuration."""


class CalibrationError(DsparkError):
    """Confidence temperatures cannot be fitted, judged or read; the message holds every reason."""


class JobFailed(DsparkError):
    """A job of a sweep failed; its reasons are told already."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)
