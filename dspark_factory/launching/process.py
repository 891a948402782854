"""Hydra launcher that runs every job in a process of its own.

A job that is killed or takes its process with it costs the sweep that job and no other; memory, caches and peak
counters of one job never meet the next. Jobs whose record in the same folder is that of the same configuration
are skipped.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from dspark_factory.errors import JobFailed
from dspark_factory.launching.child import run_child
from dspark_factory.launching.jobs import Job
from dspark_factory.launching.progress import SweepProgress
from dspark_factory.results import Record, Status
from dspark_factory.results.objective import objective
from dspark_factory.results.record import RecordError
from dspark_factory.sweeps.manifest import write_manifest


@dataclass(kw_only=True)
class Running:
    """A job's process."""

    job: Job
    process: Any
    gpu: int | None
    started: float = field(default_factory=time.perf_counter)


class ProcessLauncher(Launcher):
    """Runs jobs one after another, or ``jobs_at_once``, or one per GPU.

    Args:
        jobs_at_once: processes at a time.
        gpus: device numbers; each job sees one of them alone, and as many run at a time.
        fail_fast: start no further job after one that did not end well.
        resume: skip jobs that ended well before, with the same configuration, in the same folder.
    """

    folders: ClassVar[list[Path]] = []
    """Folders of the sweeps that this process launched."""

    def __init__(self, jobs_at_once: int, gpus: Sequence[int], fail_fast: bool, resume: bool) -> None:
        self._gpus = list(gpus)
        self._at_once = len(self._gpus) or jobs_at_once
        self._fail_fast, self._resume = fail_fast, resume

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before :meth:`launch`."""
        self.config, self.hydra_context, self.task_function = config, hydra_context, task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run a job for each list of overrides; results in the same order."""
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if folder not in self.folders:
            self.folders.append(folder)
        jobs = [
            self._job(folder, initial_job_idx + index, list(overrides))
            for index, overrides in enumerate(job_overrides)
        ]
        write_manifest(folder, {os.path.relpath(job.folder, folder): job.overrides for job in jobs})
        finished = self._run(jobs, folder)
        return [self._returned(job, finished.get(job.index)) for job in jobs]

    def _job(self, folder: Path, index: int, overrides: list[str]) -> Job:
        composed = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(composed):
            composed.hydra.job.id = str(index)
            composed.hydra.job.num = index
            composed.hydra.sweep.dir = str(folder)
        return Job(
            index=index,
            overrides=tuple(overrides),
            composed=composed,
            folder=folder / str(composed.hydra.sweep.subdir),
        )

    def _run(self, jobs: Sequence[Job], folder: Path) -> dict[int, Record]:
        progress = SweepProgress(folder, len(jobs), self._at_once)
        waiting, running, finished = list(jobs), list[Running](), dict[int, Record]()
        try:
            while waiting or running:
                while waiting and len(running) < self._at_once:
                    job = waiting.pop(0)
                    before = job.finished_before() if self._resume else None
                    if before is not None:
                        finished[job.index] = before
                        progress.skipped(job)
                    else:
                        progress.began(job)
                        running.append(self._start(job, running))
                if not running:
                    continue
                ended = set(wait([item.process.sentinel for item in running]))
                for item in [item for item in running if item.process.sentinel in ended]:
                    running.remove(item)
                    item.process.join()
                    record = _ended(item)
                    finished[item.job.index] = record
                    progress.ended(item.job, record, time.perf_counter() - item.started)
                    if self._fail_fast and record.status is not Status.OK and waiting:
                        progress.gave_up(len(waiting))
                        waiting.clear()
        except BaseException:
            for item in running:
                item.process.join(timeout=5)  # an interrupt reaches it too, and it writes its record
                item.process.terminate()
            raise
        return finished

    def _start(self, job: Job, running: Sequence[Running]) -> Running:
        taken = {item.gpu for item in running}
        gpu = next((number for number in self._gpus if number not in taken), None)
        # A fresh interpreter: a forked one could not use CUDA once its parent had.
        process = multiprocessing.get_context("spawn").Process(
            target=run_child,
            args=(self.hydra_context, self.task_function, job.composed, str(job.folder), gpu),
            name=f"dspark job {job.index}",
            daemon=True,
        )
        process.start()
        return Running(job=job, process=process, gpu=gpu)

    def _returned(self, job: Job, record: Record | None) -> JobReturn:
        returned = JobReturn(
            overrides=list(job.overrides),
            cfg=job.composed,
            hydra_cfg=OmegaConf.masked_copy(job.composed, "hydra"),
            working_dir=os.getcwd(),
            task_name=str(job.composed.hydra.job.name),
        )
        good = record is not None and record.status is Status.OK
        returned.status = JobStatus.COMPLETED if good else JobStatus.FAILED
        refused = record is not None and record.status is Status.REFUSED
        returned.return_value = objective(record) if good and record else JobFailed(2 if refused else 1)
        return returned


def _ended(item: Running) -> Record:
    """The record of a job whose process has ended."""
    try:
        record = item.job.record()
        if record.status is not Status.RUNNING:
            return record
    except RecordError:
        pass  # it died before its first record, which is what the next line writes
    return item.job.say_it_died(item.process.exitcode)
