"""Relative paths begin in the folder where the command was started."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark_factory.config import load_config
from dspark_factory.config.schema import TrainTargetTask
from dspark_factory.errors import ConfigError


@pytest.fixture(autouse=True)
def started_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_user_path_becomes_absolute(started_in: Path) -> None:
    """Field report 55: user paths are resolved once, against the original folder."""
    (started_in / "texts").mkdir()
    (started_in / "prompts.txt").write_text("hello\n")
    config = load_config(
        [
            "task=train_target",
            "task.text_folder=texts",
            "task.checkpoint_out=out/new",
            "workload.file=prompts.txt",
        ]
    )
    assert isinstance(config.task, TrainTargetTask)
    assert config.task.text_folder == str(started_in / "texts")
    assert config.task.checkpoint_out == str(started_in / "out" / "new")
    assert config.workload.file == str(started_in / "prompts.txt")


def test_a_shipped_checkpoint_keeps_its_name() -> None:
    assert load_config(["model=tiny"]).model.checkpoint == "tiny"


def test_a_folder_of_the_user_is_told_with_its_whole_path(started_in: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(["model=checkpoint", "model.checkpoint=mine"])
    assert str(started_in / "mine" / "config.json") in refused.value.reasons[0]


def test_the_home_folder_is_known(started_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(started_in))
    (started_in / "prompts.txt").write_text("hello\n")
    assert load_config(["workload.file='~/prompts.txt'"]).workload.file == str(started_in / "prompts.txt")


def test_a_file_that_does_not_exist_is_refused_with_its_path(started_in: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(["workload.file=nothing.txt"])
    assert refused.value.reasons == (f"workload.file={started_in / 'nothing.txt'} does not exist",)
