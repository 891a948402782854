"""The two registries, filled with the built-in plugins; third parties register the same descriptors."""

from __future__ import annotations

from dspark_factory.api import API_VERSION, BackendPlugin, BufferPlugin
from dspark_factory.errors import PluginError
from dspark_factory.registry.registry import Registry, load_object

BUILTIN = ("dspark_factory.kv:PLUGINS", "dspark_factory.buffers:PLUGINS", "dspark_factory.attention:PLUGINS")
"""Where the built-in descriptors lie, in the order in which their buffers are laid out."""

buffer_plugins: Registry[BufferPlugin] = Registry("buffer provider")
backend_plugins: Registry[BackendPlugin] = Registry("attention backend")


def register_plugin(plugin: BufferPlugin | BackendPlugin) -> None:
    """Make a plugin known in this process.

    Raises:
        PluginError: its name is taken, or it was made for another version of the contract.
    """
    if plugin.api_version != API_VERSION:
        raise PluginError(
            f"plugin {plugin.name!r} was made for contract version {plugin.api_version}, this is {API_VERSION}; "
            "install a matching version of the plugin"
        )
    if isinstance(plugin, BufferPlugin):
        buffer_plugins.register(plugin.name, plugin)
    else:
        backend_plugins.register(plugin.name, plugin)


def register_builtin() -> None:
    """Register every built-in plugin; called once, on import of the registry."""
    for path in BUILTIN:
        for plugin in load_object(path):
            register_plugin(plugin)
