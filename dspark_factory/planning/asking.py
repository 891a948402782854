"""Asking plugins for gates and requests; what one raises becomes a reason that names it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dspark_factory.api import BackendPlugin, BackendSpec, BufferPlugin, BufferRequest, BufferSpec, Gate
from dspark_factory.errors import ConfigError, PluginError
from dspark_factory.planning.dims import Dims
from dspark_factory.registry import load_object, origin_of
from dspark_factory.registry.discovery import tracing
from dspark_factory.registry.origin import error_text

T = TypeVar("T")

FAILED = Gate.off("its plugin failed")


@dataclass(slots=True)
class Answers:
    """What the selected plugins said.

    Attributes:
        gates: by provider, in the order asked.
        requests: (who asks, request), in the order asked; the backend last, as ``backend.<name>``.
        reasons: why it cannot go on.
    """

    gates: dict[str, Gate] = field(default_factory=dict)
    requests: list[tuple[str, BufferRequest]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def ask(self, plugin: BufferPlugin | BackendPlugin, what: str, call: Callable[[], T], other: T) -> T:
        """The answer, or ``other`` and a reason when the plugin raises.

        Raises:
            Exception: what the plugin raised, with ``DSPARK_TRACE_PLUGINS=1`` only.
        """
        option = f"buffers.{plugin.name}" if isinstance(plugin, BufferPlugin) else f"backend={plugin.name}"
        try:
            return call()
        except ConfigError as error:
            self.reasons += error.reasons
        except Exception as error:
            # A plugin is foreign code and may raise anything; its user needs its name, not our traceback.
            if tracing():
                raise
            text = str(error) if isinstance(error, PluginError) else error_text(error)
            self.reasons.append(
                f"{option}: {what} of plugin {plugin.name!r} ({origin_of(plugin)}) failed: {text}; "
                "leave the plugin out, or set DSPARK_TRACE_PLUGINS=1 to see the traceback"
            )
        return other


def ask(
    order: Sequence[BufferPlugin],
    specs: Mapping[str, BufferSpec],
    backend_plugin: BackendPlugin,
    backend_spec: BackendSpec,
    dims: Dims,
) -> Answers:
    """Ask the backend whether it can serve, every gate, and whoever is on for its requests."""
    answers = Answers()
    backend = answers.ask(backend_plugin, "loading", lambda: load_object(backend_plugin.backend)(), None)
    if backend is not None:
        why = answers.ask(backend_plugin, "reasons()", lambda: tuple(backend.reasons(dims)), ())
        answers.reasons += [f"backend={backend_plugin.name}: {reason}" for reason in why]
    _ask_providers(answers, order, specs, dims, backend_plugin)
    if backend is not None:
        _add_requests(
            answers,
            backend_plugin,
            lambda: backend.requests(backend_spec, dims),
            f"backend.{backend_plugin.name}",
        )
    return answers


def _ask_providers(
    answers: Answers,
    order: Sequence[BufferPlugin],
    specs: Mapping[str, BufferSpec],
    dims: Dims,
    backend: BackendPlugin,
) -> None:
    """Ask every gate, then the open ones for their requests; a closed gate is never asked."""
    readers = set(backend.reads)
    for plugin in order:
        if specs[plugin.name].enabled:
            readers.update(plugin.reads)
    for plugin in order:
        _ask_provider(answers, plugin, specs[plugin.name], dims, readers, backend)


def _ask_provider(
    answers: Answers,
    plugin: BufferPlugin,
    spec: BufferSpec,
    dims: Dims,
    readers: Container[str],
    backend: BackendPlugin,
) -> None:
    provider = answers.ask(plugin, "loading", lambda: load_object(plugin.provider)(), None)
    if provider is None:
        answers.gates[plugin.name] = FAILED
        return
    closed = _closed(plugin, spec, answers.gates, readers, backend)
    gate = closed or answers.ask(plugin, "gate()", lambda: _checked_gate(provider.gate(spec, dims)), FAILED)
    answers.gates[plugin.name] = gate
    if gate.enabled:
        _add_requests(answers, plugin, lambda: provider.requests(spec, dims), plugin.name)


def _closed(
    plugin: BufferPlugin,
    spec: BufferSpec,
    gates: Mapping[str, Gate],
    readers: Container[str],
    backend: BackendPlugin,
) -> Gate | None:
    """The gate, where it is off before the provider is asked."""
    if plugin.stores_kv and plugin.name != backend.kv:
        return Gate.off(f"backend={backend.name} keeps its KV in {backend.kv}")
    if not spec.enabled:
        return Gate.off(f"buffers.{plugin.name}.enabled=false")
    for name in plugin.requires:
        if not gates[name].enabled:
            return Gate.off(f"it requires {name}, which is off: {gates[name].reason}")
    if plugin.on_demand and plugin.name not in readers:
        return Gate.off("nobody reads it")
    return None


def _add_requests(
    answers: Answers, plugin: BufferPlugin | BackendPlugin, call: Callable[[], Any], asker: str
) -> None:
    requests = answers.ask(plugin, "requests()", lambda: _checked_requests(call()), ())
    answers.requests += [(asker, request) for request in requests]


def _checked_gate(gate: Any) -> Gate:
    if not isinstance(gate, Gate):
        raise PluginError(f"it returned {gate!r}; return Gate.on(…) or Gate.off(…)")
    return gate


def _checked_requests(requests: Any) -> tuple[BufferRequest, ...]:
    found = () if requests is None else tuple(requests)
    if requests is None or not all(isinstance(item, BufferRequest) for item in found):
        raise PluginError(f"it returned {requests!r}; return a sequence of BufferRequest")
    return found
