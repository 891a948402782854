"""What a job's process runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hydra.core.utils import run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from dspark_factory.config.store import register_schemas

LOG_NAME = "job.log"
"""File in a job's folder that takes what the job prints."""


def run_child(
    hydra_context: HydraContext,
    task_function: TaskFunction,
    composed: DictConfig,
    folder: str,
    gpu: int | None,
) -> None:
    """Run one job; its output goes to its folder, its outcome into its record."""
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    Path(folder).mkdir(parents=True, exist_ok=True)
    log = os.open(Path(folder) / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    setup_globals()
    register_schemas()
    run_job(
        hydra_context=hydra_context,
        task_function=task_function,
        config=composed,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
