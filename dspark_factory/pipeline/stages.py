"""The start-up order. A pipeline passes these stages once, in this order, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from dspark_factory.errors import StageOrderError


class Stage(Enum):
    """Stages by name; what each does is in :class:`~dspark_factory.pipeline.pipeline.Pipeline`."""

    PLAN = "PLAN"
    CONSTRUCT = "CONSTRUCT"
    AUTOTUNE = "AUTOTUNE"
    WARMUP = "WARMUP"
    CHECK = "CHECK"
    CAPTURE = "CAPTURE"
    FREEZE = "FREEZE"
    CLOSED = "CLOSED"


STAGES = (
    Stage.PLAN,
    Stage.CONSTRUCT,
    Stage.AUTOTUNE,
    Stage.WARMUP,
    Stage.CHECK,
    Stage.CAPTURE,
    Stage.FREEZE,
)


class StageClock:
    """Which stage is done, and how long each took.

    Attributes:
        now: the last stage that is done.
        seconds: duration of each stage that ran.
    """

    def __init__(self) -> None:
        self.now: Stage | None = None
        self.seconds: dict[Stage, float] = {}

    @contextmanager
    def run(self, stage: Stage) -> Iterator[None]:
        """Run a stage; it is done when the block ends without an error, and may be tried again otherwise.

        Raises:
            StageOrderError: another stage is next.
        """
        expected = self._next()
        if stage is not expected:
            hint = f"the next stage is {expected.value}" if expected else "no stage is left"
            raise StageOrderError(self._name(), stage.value, hint)
        started = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - started
        self.now = stage

    def require(self, stage: Stage, wanted: str) -> None:
        """Refuse ``wanted`` unless ``stage`` is the last one done.

        Raises:
            StageOrderError: it is not.
        """
        if self.now is not stage:
            raise StageOrderError(
                self._name(), wanted, f"it needs {stage.value} to be done; call prepare() once"
            )

    def close(self) -> None:
        """No stage may follow."""
        self.now = Stage.CLOSED

    def _next(self) -> Stage | None:
        if self.now is None:
            return STAGES[0]
        if self.now not in STAGES or self.now is STAGES[-1]:
            return None
        return STAGES[STAGES.index(self.now) + 1]

    def _name(self) -> str:
        return self.now.value if self.now else "its beginning"
