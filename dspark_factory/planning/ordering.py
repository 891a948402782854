"""Dependency order of providers."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from dspark_factory.api import BufferPlugin
from dspark_factory.errors import ConfigError


def in_dependency_order(selected: Mapping[str, BufferPlugin]) -> tuple[BufferPlugin, ...]:
    """Selected plugins, each after what it requires; otherwise in the order given.

    Raises:
        ConfigError: a requirement is not selected, or requirements form a circle.
    """
    reasons = [
        f"buffers.{plugin.name} requires {name!r}, which is not selected; add it to buffers"
        for plugin in selected.values()
        for name in plugin.requires
        if name not in selected
    ]
    if reasons:
        raise ConfigError(reasons)
    sorter = TopologicalSorter({plugin.name: plugin.requires for plugin in selected.values()})
    try:
        names = tuple(sorter.static_order())
    except CycleError as error:
        raise ConfigError(
            [
                f"buffer providers require one another in a circle: {' → '.join(error.args[1])}; drop one requirement"
            ]
        ) from error
    return tuple(selected[name] for name in names)
