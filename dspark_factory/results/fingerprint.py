"""Whether two jobs would measure the same: their configuration and the versions of what runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dspark_factory.registry import backend_plugins, buffer_plugins, origin_of
from dspark_factory.results.environment import environment
from dspark_factory.results.record import plain

if TYPE_CHECKING:
    from dspark_factory.config.schema import Config

SHOWN_ONLY = ("output", "task.show_text", "task.plot")
"""Options that change what is shown and nothing that is measured."""


def fingerprint(config: Config) -> str:
    """SHA-256 of everything that decides what a job measures, as hexadecimal digits.

    The whole configuration but :data:`SHOWN_ONLY`, with the versions of the libraries and of the plugins that it uses.
    """
    values: dict[str, Any] = plain(asdict(config))
    for option in SHOWN_ONLY:
        _remove(values, option.split("."))
    used = [backend_plugins[config.backend.kind]] if config.backend.kind in backend_plugins else []
    used += [buffer_plugins[name] for name in config.buffers if name in buffer_plugins]
    values["plugins"] = {plugin.name: str(origin_of(plugin)) for plugin in used}
    values["versions"] = environment()["versions"]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _remove(values: dict[str, Any], path: Sequence[str]) -> None:
    *parents, name = path
    for parent in parents:
        values = values.get(parent) or {}
    values.pop(name, None)
