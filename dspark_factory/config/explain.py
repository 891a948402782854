"""Why Hydra refuses a list of overrides: each is judged on its own, one clear line for each problem."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig

from dspark_factory.api import BackendPlugin, BufferPlugin
from dspark_factory.config.composed import TARGET_KEY, first_line, refuse_target
from dspark_factory.config.extras import missing_extra
from dspark_factory.config.groups import Groups
from dspark_factory.config.values import nearest_option, value_reason
from dspark_factory.registry import plugin_of_group

logger = logging.getLogger(__name__)

Compose = Callable[[list[str]], DictConfig]
"""Hydra's composition; raises whatever Hydra raises."""

MULTIPLE_GROUP = "buffers"
"""The one group of which several files are chosen at once."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Reasons, and what the overrides that nothing was found against compose to."""

    reasons: tuple[str, ...]
    composed: DictConfig | None


def explain(
    overrides: Sequence[str], compose: Compose, *, sweeping: bool = False, config_name: str | None = None
) -> Explained:
    """Judge every override.

    Args:
        overrides: as given.
        compose: called with choices of groups; Hydra's compose API must be initialized.
        sweeping: whether comma-separated values are several jobs, each judged, instead of a mistake.
        config_name: primary configuration, where it is not ours.
    """
    reasons: list[str] = []
    parsed = [item for line in overrides for item in _parsed(line, sweeping, reasons)]
    groups = Groups.seen_with(overrides, config_name)
    known = set(groups.names())
    chosen: list[Override] = []
    values: list[Override] = []
    for item in parsed:
        if item.key_or_group in known and not isinstance(item.value(), dict):
            reason = _group_reason(item, groups)
            reasons += [reason] if reason else []
            chosen += [] if reason else [item]
        else:
            (chosen if item.is_hydra_override() else values).append(item)
    composed = _composed(chosen, compose, reasons)
    if composed is not None:
        for item in values:
            reason = _value_reason(item, composed)
            reasons += [reason] if reason else []
    return Explained(tuple(dict.fromkeys(reasons)), composed)


def _parsed(line: str, sweeping: bool, reasons: list[str]) -> Iterator[Override]:
    """The override, or one per value of a sweep; nothing when it cannot be read."""
    try:
        item = OverridesParser.create().parse_override(line)
    except HydraException as error:
        logger.debug("cannot parse %r: %s", line, error)
        reasons.append(_unreadable(line))
        return
    if not item.key_or_group:
        reasons.append(_unreadable(line))
    elif _names_target(item) and not item.is_hydra_override():
        reasons.append(refuse_target(item.input_line or line))
    elif not item.is_sweep_override() or item.is_hydra_override():
        yield item
    elif not sweeping:
        simple = item.value_type is ValueType.SIMPLE_CHOICE_SWEEP
        as_list = f", or write a list as {item.key_or_group}=[{item.get_value_string()}]" if simple else ""
        reasons.append(
            f"{line}: {item.key_or_group} takes one value here; add -m to run one job for each{as_list}"
        )
    elif item.is_discrete_sweep() and item.value_type is not ValueType.GLOB_CHOICE_SWEEP:
        for text in item.sweep_string_iterator():
            key = item.get_key_element()
            yield OverridesParser.create().parse_override(f"{key}={text}")


def _unreadable(line: str) -> str:
    name = line.split("=")[0]
    if re.fullmatch(r"[+~]*[\w.]+\[\d+\]", name):
        return f"{line}: a list is written whole, as in {name.split('[')[0]}=[…]"
    if re.fullmatch(r"[+]*[\w./@]+", line):
        return f"{line}: it has no value; write {line}=VALUE"
    return (
        f"{line!r} cannot be read as an override; write group=name or group.option=value, "
        "and put quotes around it where it has spaces, brackets or commas"
    )


def _names_target(item: Override) -> bool:
    def names(value: Any) -> bool:
        if isinstance(value, dict):
            return any(str(key) == TARGET_KEY or names(inner) for key, inner in value.items())
        return isinstance(value, list) and any(names(inner) for inner in value)

    return TARGET_KEY in item.key_or_group.split(".") or names(item.value())


def _group_reason(item: Override, groups: Groups) -> str | None:
    line, group, value = item.input_line, item.key_or_group, item.value()
    choose = f"choose one of {groups.options_text(group)}"
    if item.package is not None:
        return f"{line}: groups have their fixed place; write {group}=NAME"
    if item.is_delete():
        return (
            f"{line}: {group} cannot be removed; {f'write {group}=[]' if group == MULTIPLE_GROUP else choose}"
        )
    if item.is_force_add():
        return f"{line}: a group is chosen without +; write {group}={item.get_value_string()}"
    if isinstance(value, list) and group != MULTIPLE_GROUP:
        return f"{line}: {group} takes one option; {choose}"
    for name in value if isinstance(value, list) else [value]:
        if not isinstance(name, str) or not name:
            return f"{line}: {group} takes the name of an option; {choose}"
        if name not in groups.options(group):
            return groups.unknown_option(group, name)
    return None


def _value_reason(item: Override, base: DictConfig) -> str | None:
    if item.package is not None or "/" in item.key_or_group:
        return nearest_option(item.key_or_group.replace("/", "."), base) or (
            f"{item.input_line}: there is no such group; write option paths with dots"
        )
    return value_reason(item, base)


def _composed(chosen: list[Override], compose: Compose, reasons: list[str]) -> DictConfig | None:
    """What the chosen groups compose to, without those that Hydra refuses; ``None`` when nothing composes."""
    try:
        return compose([str(item.input_line) for item in chosen])
    except Exception:
        logger.debug("the chosen groups do not compose; trying them one after the other", exc_info=True)
    composed: DictConfig | None = None
    accepted: list[str] = []
    for item in [None, *chosen]:
        lines = [*accepted, *([str(item.input_line)] if item else [])]
        try:
            composed = compose(lines)
        except Exception as error:
            logger.debug("%s does not compose", lines, exc_info=True)
            reasons.append(_refused_choice(item, error) if item else first_line(error))
        else:
            accepted = lines
    return composed


def _refused_choice(item: Override, error: Exception) -> str:
    line = str(item.input_line)
    lacking = missing_extra(error, [line])
    if lacking is not None:
        return lacking
    if item.is_hydra_override():
        return f"{line}: {first_line(error)}"
    if item.is_add():
        owner = plugin_of_group(str(item.key_or_group))
        if owner is not None:
            return f"{line}: it sets options of {owner.name}; {_select(owner)}"
        return f"{line}: {item.key_or_group} is chosen already; write {line.lstrip('+')}"
    if "+" + line in str(error):
        return f"{line}: no {item.key_or_group} is chosen by default; write +{line}"
    return f"{line}: {first_line(error)}"


def _select(plugin: BufferPlugin | BackendPlugin) -> str:
    if isinstance(plugin, BufferPlugin):
        return f"select it with buffers=[default,{plugin.name}], and give each of its groups once"
    return f"choose it with backend={plugin.name}, and give each of its groups once"


__all__ = ["Compose", "Explained", "explain"]
