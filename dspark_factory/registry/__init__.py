"""Registries of light descriptors; heavy modules are imported when a plugin is used."""

from dspark_factory.registry.origin import Origin, PluginFailure
from dspark_factory.registry.plugins import (
    backend_plugins,
    buffer_plugins,
    origin_of,
    plugin_failures,
    plugin_of_group,
    register_backend_plugin,
    register_buffer_plugin,
    register_plugin,
)
from dspark_factory.registry.registry import Registry, load_object

__all__ = [
    "Origin",
    "PluginFailure",
    "Registry",
    "backend_plugins",
    "buffer_plugins",
    "load_object",
    "origin_of",
    "plugin_failures",
    "plugin_of_group",
    "register_backend_plugin",
    "register_buffer_plugin",
    "register_plugin",
]
