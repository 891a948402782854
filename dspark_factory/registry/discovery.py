"""Plugins of installed distributions, found by their entry points; what is wrong with one becomes a value.

The built-in providers and backends are entry points of this project's own distribution, so that they come the
same way as anybody else's.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from dspark_factory.api import BackendPlugin, BufferPlugin
from dspark_factory.errors import PluginError
from dspark_factory.registry.config_files import clashing_files
from dspark_factory.registry.origin import OWN_DISTRIBUTION, Origin, PluginFailure, error_text
from dspark_factory.registry.validation import unusable

Plugin = BufferPlugin | BackendPlugin

KINDS = ("buffers", "backends")
"""Kinds of plugins; the entry-point group of each is ``dspark_factory.<kind>``."""
ALLOW_LIST = "DSPARK_PLUGINS"
"""Variable with the third-party plugins that may be imported, separated by commas; unset allows all."""
TRACE = "DSPARK_TRACE_PLUGINS"
"""Variable that, set to 1, lets the exception of a broken plugin through."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An entry point, not imported yet."""

    name: str
    kind: str
    entry: EntryPoint
    origin: Origin

    def failure(self, reason: str) -> PluginFailure:
        """This plugin as a failure."""
        return PluginFailure(self.name, self.kind, self.origin.distribution, self.origin.version, reason)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Usable plugins with where they come from, and a failure for each of the others."""

    plugins: tuple[tuple[Plugin, Origin], ...]
    failures: tuple[PluginFailure, ...]


def tracing() -> bool:
    """Whether exceptions of plugins are to be raised instead of reported."""
    return os.environ.get(TRACE) == "1"


def discover() -> Discovery:
    """Import every plugin that is allowed and whose name is its own.

    Raises:
        PluginError: this project's own plugins are declared nowhere.
        Exception: what a plugin raised, with ``DSPARK_TRACE_PLUGINS=1`` only.
    """
    declared = list(_declared())
    failures = list(_not_installed(declared))
    wanted = [item for item in declared if item.origin.builtin or _allowed(item.name)]
    failures += [item.failure(_excluded()) for item in declared if item not in wanted]
    usable: list[tuple[Declared, Plugin]] = []
    for item in wanted:
        reason = _name_taken(item, wanted)
        plugin = reason or _loaded(item)
        if isinstance(plugin, str):
            failures.append(item.failure(plugin))
        else:
            usable.append((item, plugin))
    clashes = clashing_files([plugin for item, plugin in usable if not item.origin.builtin])
    failures += [
        item.failure(clashes[plugin.kind, item.name])
        for item, plugin in usable
        if (plugin.kind, item.name) in clashes
    ]
    return Discovery(
        tuple((plugin, item.origin) for item, plugin in usable if (plugin.kind, item.name) not in clashes),
        tuple(failures),
    )


def _declared() -> Iterator[Declared]:
    found = [
        (kind, entry, Origin(entry.dist.name, entry.dist.version))
        for kind in KINDS
        for entry in entry_points(group=f"dspark_factory.{kind}")
        if entry.dist is not None
    ]
    if not any(origin.builtin for _, _, origin in found):
        found += _of_source_tree()
    for kind, entry, origin in found:
        yield Declared(entry.name, kind, entry, origin)


def _of_source_tree() -> list[tuple[str, EntryPoint, Origin]]:
    """Our own entry points where nothing is installed: a bare source tree states them in pyproject.toml."""
    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text())["project"] if path.is_file() else {}
    if project.get("name") != OWN_DISTRIBUTION:
        raise PluginError(
            f"no buffer provider and no backend is installed: the metadata of {OWN_DISTRIBUTION} is missing or "
            f"outdated; install it again (pip install --force-reinstall --no-deps {OWN_DISTRIBUTION})"
        )
    origin = Origin(OWN_DISTRIBUTION, project["version"])
    return [
        (kind, EntryPoint(name, value, f"dspark_factory.{kind}"), origin)
        for kind in KINDS
        for name, value in project["entry-points"][f"dspark_factory.{kind}"].items()
    ]


def _allow_list() -> list[str] | None:
    text = os.environ.get(ALLOW_LIST)
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _allowed(name: str) -> bool:
    allowed = _allow_list()
    return allowed is None or name in allowed


def _excluded() -> str:
    return f"{ALLOW_LIST}={os.environ[ALLOW_LIST]} does not name it, so it was not imported; add it there"


def _not_installed(declared: Sequence[Declared]) -> Iterator[PluginFailure]:
    """Names of the allow-list that nothing installed has."""
    known = {item.name for item in declared}
    for name in dict.fromkeys(_allow_list() or []):
        if name not in known:
            reason = (
                f"{ALLOW_LIST} names it, but no installed distribution declares it; install it or drop it"
            )
            yield PluginFailure(name, "", None, None, reason)


def _name_taken(item: Declared, declared: Sequence[Declared]) -> str | None:
    """Why the name is not this plugin's; a built-in keeps its name, third parties both lose it."""
    if item.origin.builtin:
        return None
    same = [other for other in declared if (other.kind, other.name) == (item.kind, item.name)]
    if any(other.origin.builtin for other in same):
        return (
            f"{item.name!r} is a built-in name, which {OWN_DISTRIBUTION} keeps; the plugin needs another one"
        )
    if len(same) > 1:
        owners = " and ".join(sorted(str(other.origin) for other in same))
        return f"{owners} both declare {item.name!r}, so neither is used; uninstall one"
    return None


def _loaded(item: Declared) -> Plugin | str:
    """The checked descriptor, or why there is none."""
    try:
        plugin = item.entry.load()
        reason = unusable(plugin, item.kind, item.name, trusted=item.origin.builtin)
    except (Exception, SystemExit) as error:
        # A plugin's module may raise anything, and one that calls exit() must not take the command with it.
        if tracing():
            raise
        return f"importing {item.entry.value} raised {error_text(error)}"
    return reason or plugin
