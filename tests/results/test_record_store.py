"""Records on disk: whole or not at all, and every error names the path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dspark_factory.results import RECORD_NAME, RecordBuilder, Status, read_record, write_record
from dspark_factory.results.record import RecordError


def test_a_written_record_is_read_back(tmp_path: Path) -> None:
    record = RecordBuilder("plan").finish()
    path = write_record(record, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / RECORD_NAME
    assert read_record(path) == read_record(path.parent) == record
    assert path.read_text().endswith("}\n")
    assert path.read_text().startswith('{\n  "schema_version": 1,\n')


def test_writing_replaces_the_older_record_and_leaves_nothing_else(tmp_path: Path) -> None:
    builder = RecordBuilder("plan")
    write_record(builder.finish(), tmp_path)
    write_record(builder.finish(Status.FAILED, "later"), tmp_path)
    assert read_record(tmp_path).failure == "later"
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_NAME]


def test_a_failed_write_keeps_the_older_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = RecordBuilder("plan")
    write_record(builder.finish(), tmp_path)

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RecordError) as refused:
        write_record(builder.finish(Status.FAILED, "later"), tmp_path)
    assert str(refused.value) == f"cannot write the record {tmp_path / RECORD_NAME}: No space left on device"
    assert read_record(tmp_path).failure is None
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_NAME]


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RecordError, match=r"cannot write the record .*taken/record\.json: "):
        write_record(RecordBuilder("plan").finish(), tmp_path / "taken")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read the record"),
        ("{", "is not JSON"),
        ("[]", "is no record: it holds a list"),
        ("{}", "no schema_version"),
        ('{"schema_version": 99}', "upgrade dspark-factory"),
        ('{"schema_version": 1}', "it lacks task, status"),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / RECORD_NAME
    if text is not None:
        path.write_text(text)
    with pytest.raises(RecordError) as refused:
        read_record(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)
