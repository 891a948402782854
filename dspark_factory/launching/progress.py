"""One line per job on stderr, with the time that is left."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dspark_factory.launching.jobs import Job
from dspark_factory.results import Record, Status


class SweepProgress:
    """Says what begins, what ended and how long the rest will take.

    Args:
        folder: the sweep's.
        jobs: number of jobs.
        at_once: jobs at a time.
    """

    def __init__(self, folder: Path, jobs: int, at_once: int) -> None:
        self._jobs, self._at_once = jobs, at_once
        self._seconds: list[float] = []
        self._skipped = 0
        self._started = time.perf_counter()
        _say(f"sweep of {jobs} jobs in {folder}")

    def began(self, job: Job) -> None:
        """A job's process was started."""
        _say(f"job {job.index} began: {job.shown}")

    def skipped(self, job: Job) -> None:
        """A job was done before."""
        self._skipped += 1
        _say(f"job {job.index} skipped, its record is there already: {job.shown}")

    def ended(self, job: Job, record: Record, seconds: float) -> None:
        """A job's process ended."""
        self._seconds.append(seconds)
        done = len(self._seconds) + self._skipped
        outcome = "done" if record.status is Status.OK else record.status.value
        line = f"job {job.index} {outcome} after {_clock(seconds)}; {done} of {self._jobs} jobs"
        left = self._jobs - done
        if left > 0:
            average = sum(self._seconds) / len(self._seconds)
            line += f", about {_clock(average * left / self._at_once)} left"
        _say(line)
        if record.status is not Status.OK:
            for reason in (record.failure or "").splitlines():
                _say(f"error: job {job.index}: {reason}")

    def gave_up(self, jobs: int) -> None:
        """A failure ended the sweep early."""
        _say(f"{jobs} jobs are not started after a failure (hydra.launcher.fail_fast=true)")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
