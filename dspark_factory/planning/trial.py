"""Asking one plugin on its own, to see whether it answers at all."""

from __future__ import annotations

from dataclasses import replace

from dspark_factory.api import BackendPlugin, BufferPlugin
from dspark_factory.config.load import load_config
from dspark_factory.errors import DsparkError
from dspark_factory.planning.asking import ask
from dspark_factory.planning.ordering import in_dependency_order
from dspark_factory.planning.resolve import resolve_dims
from dspark_factory.registry import backend_plugins, buffer_plugins


def answering_failure(plugin: BufferPlugin | BackendPlugin) -> str | None:
    """Why gate or requests of a buffer plugin fail for the default configuration; ``None`` when they answer.

    A backend is asked when it is chosen, because it may refuse a geometry for good reasons.
    """
    if isinstance(plugin, BackendPlugin):
        return None
    backend = backend_plugins["reference"]
    if plugin.stores_kv:
        backend = replace(backend, kv=plugin.name)
    try:
        selected = _with_required(plugin, {})
        specs = {name: item.spec() for name, item in selected.items()}
        dims = resolve_dims(load_config())
        answers = ask(in_dependency_order(selected), specs, backend, backend.spec(), dims)
    except (DsparkError, TypeError) as error:
        return str(error)
    own = [reason for reason in answers.reasons if reason.startswith(f"buffers.{plugin.name}:")]
    return own[0] if own else None


def _with_required(plugin: BufferPlugin, found: dict[str, BufferPlugin]) -> dict[str, BufferPlugin]:
    found[plugin.name] = plugin
    for name in plugin.requires:
        if name not in found:
            _with_required(buffer_plugins[name], found)
    return found
