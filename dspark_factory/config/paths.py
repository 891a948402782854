"""Paths that users give: relative ones begin where the command was started, whatever the job's folder is."""

from __future__ import annotations

from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from dspark_factory.config.model_shape import checkpoint_folder
from dspark_factory.config.schema import BenchTask, Config, RecommendTask, TrainTargetTask


def starting_folder() -> Path:
    """The working directory at the start of the command; outside a job, the current one."""
    return Path(HydraConfig.get().runtime.cwd) if HydraConfig.initialized() else Path.cwd()


def absolute(path: str) -> str:
    """The path from the root; ``~`` is the home folder."""
    return str(starting_folder() / Path(path).expanduser())


def anchor_paths(config: Config) -> None:
    """Make every path in the configuration absolute, in place; shipped checkpoints keep their name."""
    if config.workload.file is not None:
        config.workload.file = absolute(config.workload.file)
    if config.model.checkpoint is not None:
        config.model.checkpoint = anchored_checkpoint(config.model.checkpoint)
    task = config.task
    if isinstance(task, BenchTask) and task.plot is not None:
        task.plot = absolute(task.plot)
    if isinstance(task, RecommendTask):
        task.acceptance_log = absolute(task.acceptance_log)
        task.cost_table = absolute(task.cost_table)
    if isinstance(task, TrainTargetTask):
        task.checkpoint_out = absolute(task.checkpoint_out)
        if task.text_folder is not None:
            task.text_folder = absolute(task.text_folder)


def anchored_checkpoint(name: str) -> str:
    """Name of a shipped checkpoint, or the absolute path of the user's own."""
    return name if checkpoint_folder(name).is_absolute() and "/" not in name else absolute(name)
