"""Options of this project's Hydra launcher; no part of a run's own configuration."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class ProcessLauncherSpec:
    """Hydra launcher that runs every job of a sweep in a process of its own: ``hydra/launcher=process``."""

    _target_: str = "hydra_plugins.dspark_process.ProcessLauncher"
    jobs_at_once: int = 1
    """Processes at a time."""
    gpus: list[int] = field(default_factory=list)
    """Device numbers: each job sees one of them alone, and as many jobs run at a time. Empty leaves them alone."""
    fail_fast: bool = False
    """Start no further job after one that did not end well."""
    resume: bool = True
    """With hydra.sweep.dir of an earlier sweep: skip jobs that ended well there with the same configuration."""
