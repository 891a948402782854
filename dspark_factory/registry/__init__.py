"""Registries of light descriptors; heavy modules are imported when a plugin is used."""

from dspark_factory.registry.builtin import (
    backend_plugins,
    buffer_plugins,
    register_builtin,
    register_plugin,
)
from dspark_factory.registry.registry import Registry, load_object

__all__ = ["Registry", "backend_plugins", "buffer_plugins", "load_object", "register_plugin"]

register_builtin()
