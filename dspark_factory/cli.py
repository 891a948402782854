"""The ``dspark`` command: a thin Hydra application around the tasks.

Exit status: 0 done, 1 a task broke, 2 refused with one ``error:`` line per reason, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dspark_factory.config.help import help_text
from dspark_factory.config.load import explain_all, register_schemas, to_config
from dspark_factory.config.prompt_override import quote_prompts
from dspark_factory.config.schema import OutputFormat
from dspark_factory.errors import ConfigError, DsparkError, JobFailed, PluginError
from dspark_factory.launching.process import ProcessLauncher
from dspark_factory.reporting.console import discard_output, output_console
from dspark_factory.reporting.sweep_summary import summarize
from dspark_factory.reporting.sweep_table import print_sweep
from dspark_factory.results import Record, RecordBuilder, Status, record_text, write_record
from dspark_factory.results.objective import objective
from dspark_factory.tasks import load_task

logger = logging.getLogger(__name__)

BROKEN, REFUSED, INTERRUPTED = 1, 2, 130
FULL_ERROR = "HYDRA_FULL_ERROR"
SWEEP_OVERRIDE = re.compile(r"\+?sweep=|hydra\.mode=MULTIRUN")
"""Overrides that make a multirun without ``-m``."""


def main() -> int:
    """Run the command line; returns the exit status."""
    try:
        register_schemas()
        # Hydra's own search for launchers misses them in some editable installs.
        Plugins.instance().register(import_module("hydra_plugins.dspark_process").ProcessLauncher)
    except PluginError as error:
        print_reasons([str(error)])
        return REFUSED
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(help_text(), end="")
        return 0
    sweeping = any(argument in ("-m", "--multirun") for argument in sys.argv)
    sys.argv[1:] = quote_prompts(sys.argv[1:], sweeping=sweeping)
    application = hydra.main(
        config_path="pkg://dspark_factory.conf", config_name="config", version_base="1.3"
    )(run_job)
    try:
        with _errors_reach_us():
            application()
    except JobFailed as failed:
        return report_sweeps() or failed.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        # Jobs report their own failures, so this one happened while Hydra composed the configuration.
        print_reasons(_composition_reasons(error))
        if os.environ.get(FULL_ERROR) == "1":
            raise
        return REFUSED
    return report_sweeps()


def report_sweeps() -> int:
    """Print what the sweeps of this command found; 1 when a job did not end well or a knob had no effect."""
    status = 0
    for folder in ProcessLauncher.folders:
        summary = summarize(folder)
        print_sweep(summary, output_console())
        print(f"for this report as a page and tables: dspark-report {folder}")
        if summary.problems:
            status = BROKEN
    return status


def run_job(composed: DictConfig) -> float | None:
    """One job: check the configuration, run its task, write its record.

    Returns:
        What a search maximises, see :func:`~dspark_factory.results.objective.objective`.

    Raises:
        JobFailed: in a multirun, after the reasons were printed; the other jobs go on.
        SystemExit: otherwise, with the exit status.
    """
    register_schemas()
    job = HydraConfig.get()
    as_json = OmegaConf.select(composed, "output") is OutputFormat.json
    folder = Path(job.runtime.output_dir)
    record = RecordBuilder(str(job.runtime.choices.get("task")), requested=list(job.overrides.task))
    status = 0
    if job.mode is RunMode.MULTIRUN:  # whoever kills this job leaves a record that says so
        _keep(record.finish(Status.RUNNING), folder, 0)
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            finished, status = _attempt(composed, record, as_json=as_json)
    except KeyboardInterrupt:
        _keep(record.finish(Status.FAILED, "interrupted"), folder, INTERRUPTED)
        raise
    status = _keep(finished, folder, status)
    if as_json:
        _print_document(finished)
    if status:
        raise JobFailed(status) if job.mode is RunMode.MULTIRUN else SystemExit(status)
    return objective(finished)


def print_reasons(reasons: Sequence[str]) -> None:
    """One line per reason on stderr."""
    for reason in reasons:
        print(f"error: {reason}", file=sys.stderr)


def _attempt(composed: DictConfig, record: RecordBuilder, *, as_json: bool) -> tuple[Record, int]:
    """Run the task; the finished record and the exit status. Failures are printed here."""
    try:
        config = to_config(composed)
        record.set_config(config)
        load_task(config.task.kind)(config, record, output_console(silent=as_json))
    except ConfigError as error:
        print_reasons(error.reasons)
        return record.finish(Status.REFUSED, str(error)), REFUSED
    except DsparkError as error:
        print_reasons(str(error).splitlines())
        return record.finish(Status.FAILED, str(error)), REFUSED
    except Exception as error:
        logger.exception("the task broke")
        return record.finish(Status.FAILED, f"{type(error).__name__}: {error}"), BROKEN
    return record.finish(), 0


def _keep(finished: Record, folder: Path, status: int) -> int:
    """Write the record; an unwritable folder is a failure of the job, but never hides an earlier one."""
    try:
        write_record(finished, folder)
    except DsparkError as error:
        print_reasons([str(error)])
        return status or REFUSED
    return status


def _print_document(finished: Record) -> None:
    try:
        sys.stdout.write(record_text(finished))
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def _composition_reasons(error: Exception) -> list[str]:
    """What is wrong with the command line, told from its overrides."""
    from hydra._internal.utils import get_args_parser

    arguments = get_args_parser().parse_args()
    folder = arguments.config_dir
    return explain_all(
        arguments.overrides,
        error,
        sweeping=arguments.multirun or any(SWEEP_OVERRIDE.match(line) for line in arguments.overrides),
        config_name=arguments.config_name or "config",
        config_folder=folder if folder is not None and os.path.isdir(folder) else None,
    )


@contextlib.contextmanager
def _errors_reach_us() -> Iterator[None]:
    """Let Hydra raise what it would print, so that :func:`main` can explain it."""
    before = os.environ.get(FULL_ERROR)
    os.environ[FULL_ERROR] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FULL_ERROR]
        else:
            os.environ[FULL_ERROR] = before
