"""Jobs of a sweep: their folders, whether they are done, and what is said of one that died."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from dspark_factory.config.load import to_config
from dspark_factory.errors import ConfigError
from dspark_factory.results import RecordBuilder, Status, read_record, write_record
from dspark_factory.results.fingerprint import fingerprint
from dspark_factory.results.record import Record, RecordError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a sweep.

    Attributes:
        index: its number in the sweep.
        overrides: what it sets, as given.
        composed: its whole configuration, Hydra's own node included.
        folder: where its record goes.
    """

    index: int
    overrides: tuple[str, ...]
    composed: DictConfig
    folder: Path

    @property
    def shown(self) -> str:
        """Overrides in one line, without the sweep's own."""
        return (
            " ".join(line for line in self.overrides if not line.lstrip("+").startswith("sweep="))
            or "defaults"
        )

    def finished_before(self) -> Record | None:
        """The record of the same configuration that lies in its folder, if that ended well."""
        try:
            found = self.record()
        except RecordError:
            return None
        same = found.config.get("fingerprint") == self._fingerprint()
        return found if same and found.status is Status.OK else None

    def record(self) -> Record:
        """Its record as it lies there.

        Raises:
            RecordError: there is none.
        """
        return read_record(self.folder)

    def say_it_died(self, exit_code: int) -> Record:
        """Write into its record that its process ended without a word."""
        failure = _how_it_died(exit_code)
        try:
            record = replace(self.record(), status=Status.KILLED, failure=failure)
        except RecordError:
            builder = RecordBuilder(
                str(OmegaConf.select(self.composed, "task.kind")), requested=self.overrides
            )
            record = builder.finish(Status.KILLED, failure)
        write_record(record, self.folder)
        return record

    def _fingerprint(self) -> str | None:
        own = self.composed.copy()
        OmegaConf.set_struct(own, False)
        own.pop("hydra", None)
        try:
            return fingerprint(to_config(own))
        except ConfigError:
            return None


def _how_it_died(exit_code: int) -> str:
    if exit_code >= 0:
        return f"its process ended with exit status {exit_code} before it wrote how"
    name = signal.Signals(-exit_code).name
    hint = "; the system kills like this when memory runs out" if name == "SIGKILL" else ""
    return f"killed by signal {-exit_code} ({name}){hint}"
