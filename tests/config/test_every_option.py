"""Every option of every group composes into plain, valid dataclasses."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_module

from dspark_factory.config import load_config
from dspark_factory.config.groups import Groups
from dspark_factory.config.load import register_schemas
from dspark_factory.config.model_shape import checkpoint_folder

SHIPPED = checkpoint_folder("tiny")


def options() -> dict[str, list[str]]:
    register_schemas()
    with initialize_config_module("dspark_factory.conf", version_base="1.3"):
        groups = Groups()
        return {name: groups.options(name) for name in groups.names()}


OPTIONS = options()


def needed(tmp_path: Path, *chosen: str) -> list[str]:
    """Overrides, with the values that some options cannot do without."""
    extra = {
        "model=checkpoint": [f"model.checkpoint={SHIPPED}"],
        "task=train_target": [f"task.checkpoint_out={tmp_path}/new"],
        "task=recommend": ["task.acceptance_log=log.csv", "task.cost_table=costs.csv"],
        "pipeline=server": ["model=v4_flash"],
    }
    return [*chosen, *(value for option, values in extra.items() if option in chosen for value in values)]


@pytest.mark.parametrize(
    ("group", "option"), [(group, option) for group, names in OPTIONS.items() for option in names]
)
def test_every_option_of_every_group_composes(group: str, option: str, tmp_path: Path) -> None:
    if group in ("experiment", "sweep"):
        load_config([f"+{group}={option}"])
        return
    override = f"{group}=[{option}]" if group == "buffers" else f"{group}={option}"
    config = load_config(needed(tmp_path, override))
    if group in ("task", "speculative", "backend"):
        assert getattr(config, group).kind == option


@pytest.mark.parametrize(
    ("model", "speculative", "task"),
    list(product(OPTIONS["model"], OPTIONS["speculative"], OPTIONS["task"])),
)
def test_models_speculation_and_tasks_combine(
    model: str, speculative: str, task: str, tmp_path: Path
) -> None:
    config = load_config(needed(tmp_path, f"model={model}", f"speculative={speculative}", f"task={task}"))
    assert (config.speculative.kind, config.task.kind) == (speculative, task)
    assert (config.speculative.num_draft_tokens is None) == (speculative == "off")


def test_nothing_of_omegaconf_is_inside_a_loaded_configuration() -> None:
    """Field report 57: lists from YAML and from the command line arrive as plain lists of int."""
    config = load_config(
        ["model=v4_flash", "speculative=dspark", "pipeline.capture_requests=[1,2,4]", "workload.prompts=[a]"]
    )
    seen = [type(value) for value in walk(config)]
    assert seen
    assert not [kind for kind in seen if kind.__module__.startswith(("omegaconf", "hydra"))]
    assert type(config.pipeline.capture_requests) is list
    assert all(type(size) is int for size in config.pipeline.capture_requests)
    assert type(config.model.layer_types) is list
    assert type(config.buffers) is dict
    assert type(config.model.rope_scaling) is dict


def walk(value: Any) -> list[Any]:
    found = [value]
    if is_dataclass(value):
        for item in fields(value):
            found += walk(getattr(value, item.name))
    elif isinstance(value, dict):
        for key, inner in value.items():
            found += [key, *walk(inner)]
    elif isinstance(value, list | tuple):
        for inner in value:
            found += walk(inner)
    else:
        assert isinstance(value, str | int | float | bool | Enum | None), value
    return found


def test_the_happy_path_composes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from dspark_factory.config import load

    calls = []
    compose = load.compose
    monkeypatch.setattr(
        load, "compose", lambda *given, **named: calls.append(given) or compose(*given, **named)
    )
    load_config(["speculative.num_draft_tokens=4"])
    assert len(calls) == 1
