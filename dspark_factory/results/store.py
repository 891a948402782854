"""Records on disk: one JSON document per job, written whole or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from dspark_factory.results.record import Record, RecordError

RECORD_NAME = "record.json"
"""File in a job's output folder."""


def record_text(record: Record) -> str:
    """The record as a JSON document with a final newline."""
    return json.dumps(record.to_plain(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_record(record: Record, folder: Path | str) -> Path:
    """Write ``record.json`` into ``folder``; readers see the old file or the whole new one, never a part.

    Raises:
        RecordError: the folder cannot be written to; the message names the path.
    """
    path = Path(folder) / RECORD_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, record_text(record))
    except OSError as error:
        raise RecordError(f"cannot write the record {path}: {error.strerror or error}") from error
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that readers see the old one or the whole new one; ``OSError`` leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Command lines and failures may hold bytes that were no text; the file must not be lost over them.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            temporary.unlink(missing_ok=True)
        raise


def read_record(path: Path | str) -> Record:
    """Read a record file, or the ``record.json`` of a folder.

    Raises:
        RecordError: it cannot be read, is no record, or has a newer schema version; the path is named.
    """
    path = Path(path)
    if path.is_dir():
        path = path / RECORD_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read the record {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise RecordError(f"{path} is no record: it holds a {type(values).__name__}")
    try:
        return Record.from_plain(values)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
