"""What is wrong with a composed configuration before any rule runs: keys that the schema does not know,
values that are missing, interpolations that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from dspark_factory.config import schema
from dspark_factory.config.expected import expected, is_schema, schema_fields
from dspark_factory.config.groups import Groups
from dspark_factory.registry import backend_plugins, buffer_plugins, plugin_failures

TARGET_KEY = "_target_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason, and the key that it is about.

    Attributes:
        key: dotted path.
        reason: one line.
        kind: ``unknown``, ``missing``, ``mistyped`` or ``unresolved``.
    """

    key: str
    reason: str
    kind: str


def refuse_target(key: str) -> str:
    """Reason for a ``_target_``, wherever it stands."""
    return (
        f"{key}: {TARGET_KEY} is refused; nothing is imported or called because a configuration names it. "
        "Choose code by its registered name (kind) and leave the key out"
    )


def problems(composed: DictConfig) -> list[Problem]:
    """Every problem of the whole tree, in the order of its keys."""
    found = [*_targets(composed, ""), *_walk(composed, "")]
    if any(item.kind == "missing" for item in found):
        # Interpolations that read a missing value fail because of it; one line is enough.
        found = [item for item in found if item.kind != "unresolved"]
    return found


def unknown_option(section: str, name: str, kind: type) -> str:
    """Reason for an option that a schema dataclass does not have: the nearest name, or where it belongs."""
    if not section:
        return _unknown_at_top(name)
    start = f"{section}.{name}: {section} has no option {name!r}"
    options = list(schema_fields(kind))
    nearest = get_close_matches(name, options, n=1, cutoff=0.6)
    if nearest:
        return f"{start}; did you mean {section}.{nearest[0]}?"
    return f"{start}; {_elsewhere(section, name) or 'options: ' + ', '.join(options)}"


def _unknown_at_top(name: str) -> str:
    groups = Groups()
    names = sorted({*groups.names(), *schema_fields(schema.Config)})
    failures = [failure for failure in plugin_failures() if failure.name == name]
    if failures:
        return f"{name}: {failures[0]}"
    start = f"{name}: there is no group or option {name!r}"
    nearest = get_close_matches(name, names, n=1, cutoff=0.6)
    if nearest:
        choices = f" Options: {groups.options_text(nearest[0])}" if groups.options(nearest[0]) else ""
        return f"{start}; did you mean {nearest[0]}?{choices}"
    return f"{start}; {_elsewhere('', name) or 'known: ' + ', '.join(names)}"


def unknown_buffer(name: str) -> str:
    """Reason for options of a buffer provider that is unknown, or known and not selected."""
    if name in buffer_plugins:
        return f"buffers.{name} is not selected; add it to the list in buffers=[…]"
    return f"buffers.{name}: {buffer_plugins.unknown(name)}"


def _targets(node: Any, path: str) -> Iterator[Problem]:
    """Every ``_target_``, also below keys that are refused for another reason."""
    if not isinstance(node, DictConfig | ListConfig) or node._is_none() or node._is_missing():
        return
    inner: Any = node
    for key in range(len(inner)) if isinstance(node, ListConfig) else list(inner.keys()):
        where = f"{path}.{key}" if path else str(key)
        if key == TARGET_KEY:
            yield Problem(key=where, reason=refuse_target(where), kind="unknown")
        yield from _targets(inner._get_node(key, validate_access=False), where)


def _walk(node: Any, path: str) -> Iterator[Problem]:
    keys = range(len(node)) if isinstance(node, ListConfig) else list(node.keys())
    kind = OmegaConf.get_type(node)
    for key in keys:
        where = f"{path}.{key}" if path else str(key)
        problem = _problem(node, key, kind, path, where)
        if problem is not None:
            yield problem
            continue
        value = node[key]
        if isinstance(value, DictConfig | ListConfig) and not value._is_none():
            yield from _walk(value, where)


def _problem(node: Any, key: Any, kind: type | None, path: str, where: str) -> Problem | None:
    if key == TARGET_KEY:
        return None
    if kind is not None and is_schema(kind) and key not in schema_fields(kind):
        return Problem(key=where, reason=unknown_option(path, str(key), kind), kind="unknown")
    if OmegaConf.is_missing(node, key):
        return Problem(key=where, reason=missing(where), kind="missing")
    try:
        value = node[key]
    except MissingMandatoryValue:
        return Problem(key=where, reason=missing(where), kind="missing")
    except OmegaConfBaseException as error:
        return Problem(key=where, reason=f"{where}: {first_line(error)}", kind="unresolved")
    if not isinstance(value, DictConfig | ListConfig):
        return None
    if path == "buffers" and isinstance(value, DictConfig):
        return _untyped_buffer(str(key), value)
    return _nested(node, where)


def _nested(node: Any, where: str) -> Problem | None:
    """A container where the schema has a plain element; OmegaConf lets it through."""
    wanted = node._metadata.element_type if not is_schema(OmegaConf.get_type(node)) else None
    if not isinstance(wanted, type) or is_schema(wanted):
        return None
    return Problem(key=where, reason=f"{where}: write {expected(where, wanted, {})}", kind="mistyped")


def _untyped_buffer(name: str, value: DictConfig) -> Problem | None:
    kind = OmegaConf.get_type(value)
    if name not in buffer_plugins or (kind is not None and issubclass(kind, buffer_plugins[name].spec)):
        return None
    reason = f"buffers.{name} has lost its schema; select it by name, in the list buffers=[…]"
    return Problem(key=f"buffers.{name}", reason=reason, kind="unknown")


def missing(key: str) -> str:
    """Reason for a value that has to be given."""
    if key in schema_fields(schema.Config) and Groups().options(key):
        return f"{key} is not chosen; write {key}=NAME with one of {Groups().options_text(key)}"
    return f"{key} has no value; set {key}=…"


def first_line(error: BaseException) -> str:
    """The message without OmegaConf's trailer of keys and types."""
    text = str(error.__cause__ or error) if not str(error) else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _elsewhere(section: str, name: str) -> str | None:
    """Where an option of this name exists: another choice of the same group, or another section."""
    choices: dict[str, dict[str, type]] = {
        "task": dict(schema.TASKS),
        "speculative": dict(schema.SPECULATIVE),
        "backend": {key: plugin.spec for key, plugin in backend_plugins.items()},
    }
    for choice, kind in choices.get(section, {}).items():
        if name in schema_fields(kind):
            return f"it is an option of {section}={choice}"
    sections: dict[str, type] = {
        "model": schema.ModelSpec,
        "pipeline": schema.PipelineSpec,
        "device": schema.DeviceSpec,
        "workload": schema.WorkloadSpec,
    }
    for other, kind in sections.items():
        if name in schema_fields(kind):
            return f"it is {other}.{name}"
    for other, kinds in choices.items():
        if any(name in schema_fields(kind) for kind in kinds.values()):
            return f"it is {other}.{name}"
    return None
