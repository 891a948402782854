"""Where a plugin comes from, and the failure that it becomes when it cannot be used."""

from __future__ import annotations

import re
from dataclasses import dataclass

OWN_DISTRIBUTION = "dspark-factory"


@dataclass(frozen=True, slots=True)
class Origin:
    """The distribution that a plugin comes from; without one it was registered in this process."""

    distribution: str | None = None
    version: str | None = None

    @property
    def builtin(self) -> bool:
        """Whether it is this project's own."""
        return re.sub(r"[-_.]+", "-", self.distribution or "").lower() == OWN_DISTRIBUTION

    def __str__(self) -> str:
        if self.distribution is None:
            return "registered in this process"
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A plugin that cannot be used, and why; it stops nobody who does not ask for it.

    Attributes:
        name: name of the entry point.
        kind: ``buffers`` or ``backends``; empty where it is not known.
        distribution: that it comes from; ``None`` where there is none.
        version: of the distribution.
        reason: one line that says what to change.
    """

    name: str
    kind: str
    distribution: str | None
    version: str | None
    reason: str

    def __str__(self) -> str:
        origin = f" ({self.distribution} {self.version})" if self.distribution else ""
        return f"plugin {self.name!r}{origin} cannot be used: {self.reason}"


def error_text(error: BaseException) -> str:
    """Type and first line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
