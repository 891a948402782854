"""The two registries of plugins: what is installed, and what is registered in the process."""

from __future__ import annotations

from threading import RLock
from typing import TypeVar

from dspark_factory.api import BackendPlugin, BufferPlugin
from dspark_factory.errors import PluginError
from dspark_factory.registry.config_files import GROUP, clashing_files, config_groups
from dspark_factory.registry.discovery import Plugin, discover
from dspark_factory.registry.origin import Origin, PluginFailure
from dspark_factory.registry.registry import Registry
from dspark_factory.registry.validation import unusable

PluginT = TypeVar("PluginT", BufferPlugin, BackendPlugin)


class PluginRegistry(Registry[PluginT]):
    """Plugins of one kind, found when first looked at; knows where each comes from and which failed."""

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(what, load_plugins)
        self.kind = kind
        self._origins: dict[str, Origin] = {}

    def add(self, plugin: PluginT, origin: Origin) -> None:
        """Register a checked plugin."""
        self.register(plugin.name, plugin)
        self._origins[plugin.name] = origin

    def origin(self, name: str) -> Origin:
        """Where a registered plugin comes from."""
        return self._origins[self.require(name)]

    def known_origin(self, name: str) -> Origin:
        """Where a plugin of this name came from, also while it is unregistered; else this process."""
        return self._origins.get(name, Origin())

    def failure(self, name: str) -> PluginFailure | None:
        """Why an installed plugin of this name cannot be used; ``None`` where there is none such."""
        found = (item for item in plugin_failures() if item.name == name and item.kind in (self.kind, ""))
        return next(found, None)

    def unknown(self, name: str) -> str:
        """One line: the plugin's failure, or that nobody knows the name."""
        failure = self.failure(name)
        return super().unknown(name) if failure is None else str(failure)


_lock = RLock()
_failures: list[PluginFailure] = []
_loaded = False


def load_plugins() -> None:
    """Discover what is installed, once; called by the first look into a registry.

    Raises:
        PluginError: this project's own plugins are declared nowhere.
    """
    global _loaded
    if _loaded:
        return
    with _lock:
        if _loaded:
            return
        # Set before, because a plugin's module may look into the registry while it is imported.
        _loaded = True
        try:
            found = discover()
        except BaseException:
            _loaded = False
            raise
        for plugin, origin in found.plugins:
            _add(plugin, origin)
        _failures[:] = found.failures


def plugin_failures() -> tuple[PluginFailure, ...]:
    """Every installed plugin that cannot be used."""
    load_plugins()
    return tuple(_failures)


def register_buffer_plugin(plugin: BufferPlugin) -> None:
    """Make a buffer provider known in this process; from then on it is like an installed one.

    Raises:
        PluginError: its name is taken, or its descriptor cannot be used.
    """
    _register(plugin, "buffers")


def register_backend_plugin(plugin: BackendPlugin) -> None:
    """Make an attention backend known in this process; from then on it is like an installed one.

    Raises:
        PluginError: its name is taken, or its descriptor cannot be used.
    """
    _register(plugin, "backends")


def register_plugin(plugin: Plugin) -> None:
    """Make a plugin of either kind known in this process.

    Raises:
        PluginError: its name is taken, or its descriptor cannot be used.
    """
    _register(plugin, plugin.kind)


def _register(plugin: Plugin, kind: str) -> None:
    name = getattr(plugin, "name", "")
    reason = unusable(plugin, kind, name)
    if reason is not None:
        raise PluginError(f"plugin {name!r}: {reason}")
    others = [*buffer_plugins.values(), *backend_plugins.values()]
    known = buffer_plugins if kind == "buffers" else backend_plugins
    origin = known.known_origin(name)
    if name not in known and not origin.builtin:
        third_parties = [item for item in others if not origin_of(item).builtin]
        reason = clashing_files([*third_parties, plugin]).get((kind, name))
    if reason is not None:
        raise PluginError(f"plugin {name!r}: {reason}")
    _add(plugin, origin)


def _add(plugin: Plugin, origin: Origin) -> None:
    if isinstance(plugin, BufferPlugin):
        buffer_plugins.add(plugin, origin)
    else:
        backend_plugins.add(plugin, origin)


def origin_of(plugin: Plugin) -> Origin:
    """Where a registered plugin comes from."""
    known = buffer_plugins if isinstance(plugin, BufferPlugin) else backend_plugins
    return known.origin(plugin.name)


def plugin_of_group(group: str) -> Plugin | None:
    """The plugin whose own configuration group this is; ``None`` for ours."""
    for plugin in [*buffer_plugins.values(), *backend_plugins.values()]:
        if group != GROUP[plugin.kind] and group in config_groups(plugin):
            return plugin
    return None


buffer_plugins: PluginRegistry[BufferPlugin] = PluginRegistry("buffer provider", "buffers")
backend_plugins: PluginRegistry[BackendPlugin] = PluginRegistry("attention backend", "backends")
