"""Why one ``option=value`` cannot be merged into a composed configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf

from dspark_factory.config.composed import unknown_buffer, unknown_option
from dspark_factory.config.expected import element, expected, hints, is_schema, schema_fields


def value_reason(item: Override, base: DictConfig) -> str | None:
    """One line on what is wrong with the override, or ``None``; a good one is merged into ``base``."""
    key = item.key_or_group
    reason = nearest_option(key, base)
    if reason is not None:
        return reason
    if item.is_delete():
        return f"{item.input_line}: an option cannot be removed; give it a value or leave the override out"
    if item.is_add() and not isinstance(item.value(), dict | list) and _is_set(base, key):
        return f"{item.input_line}: {key} exists already; write {str(item.input_line).lstrip('+')}"
    try:
        OmegaConf.update(base, key, item.value(), merge=True, force_add=not _is_plain(item))
    except Exception:
        return _unfit(item, base)
    return None


def nearest_option(key: str, base: DictConfig) -> str | None:
    """Reason why no such option exists, with the nearest name; ``None`` where it does."""
    node: Any = base
    path = ""
    for name in key.split("."):
        if isinstance(node, DictConfig) and not node._is_none():
            reason = _unknown(node, path, name)
            if reason is not None:
                return reason
            node = node._get_node(name, validate_access=False)
        elif isinstance(node, ListConfig) and name.isdigit() and int(name) < len(node):
            node = node._get_node(int(name))
        elif isinstance(node, DictConfig | ListConfig):
            return _no_inner(node, path, key)
        else:
            return f"{key}: {path} is a value and has no option {name!r}; set {path}=VALUE"
        path = f"{path}.{name}" if path else name
    return None


def _is_plain(item: Override) -> bool:
    return not (item.is_add() or item.is_force_add())


def _is_set(base: DictConfig, key: str) -> bool:
    return OmegaConf.select(base, key, throw_on_missing=False, throw_on_resolution_failure=False) is not None


def _unknown(node: DictConfig, path: str, name: str) -> str | None:
    kind = OmegaConf.get_type(node)
    if path == "buffers":
        return None if name in node else unknown_buffer(name)
    if kind is not None and is_schema(kind):
        if name in schema_fields(kind):
            return None
        return unknown_option(path, name, kind)
    if name not in node:
        return f"{path}.{name}: {path} has no {name!r}; it has {', '.join(str(key) for key in node)}"
    return None


def _no_inner(node: DictConfig | ListConfig, path: str, key: str) -> str:
    if isinstance(node, ListConfig):
        return f"{key}: {path} is a list and is written whole, as in {path}=[…]"
    return (
        f"{key}: {path} is null in this configuration and Hydra cannot fill in a part of it; "
        "choose or write a file of the group that sets it"
    )


def _unfit(item: Override, base: DictConfig) -> str:
    key, value = item.key_or_group, item.value()
    hint, metadata = _typed(key, base)
    node = OmegaConf.select(base, key, throw_on_missing=False, throw_on_resolution_failure=False)
    if isinstance(value, dict):
        inner = _inner_reason(key, value, node)
        if inner is not None:
            return inner
        if node is None:
            return _no_inner(OmegaConf.create({}), key, key)
    shown = item.get_value_string() if "=" in str(item.input_line) else ""
    wanted = expected(key, hint, metadata) if hint is not None else "another value"
    return f"{key}={shown}: write {wanted}"


def _inner_reason(key: str, value: Mapping[Any, Any], node: Any) -> str | None:
    """The first unknown option inside a mapping."""
    kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
    if kind is None or not is_schema(kind):
        return None
    for name in value:
        if name not in schema_fields(kind):
            return unknown_option(key, str(name), kind)
    return None


def _typed(key: str, base: DictConfig) -> tuple[Any, Mapping[str, Any]]:
    """Type and metadata of an option that exists."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(base, parent) if parent else base
    kind = OmegaConf.get_type(node)
    if kind is not None and is_schema(kind):
        return hints(kind)[name], schema_fields(kind)[name].metadata
    if parent:
        outer, _ = _typed(parent, base)
        return element(outer), {}
    return None, {}
