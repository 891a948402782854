"""Plugins known for the length of a check, and the watch that sees what a provider binds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from dspark_factory.api import (
    BackendPlugin,
    BufferPlugin,
    BufferRequest,
    Buffers,
    BufferSpec,
    DType,
    Gate,
    extents,
)
from dspark_factory.planning.dims import Dims
from dspark_factory.registry import backend_plugins, buffer_plugins, load_object, register_plugin

GUARD_NBYTES = 4096
GUARD_PATTERN = 0xA5
GUARD_PREFIX = "conformance_guard_"


@contextmanager
def registered(*plugins: BufferPlugin | BackendPlugin) -> Iterator[None]:
    """These plugins are known inside, in place of others of the same name; the others come back afterwards."""
    with ExitStack() as stack:
        for plugin in plugins:
            stack.enter_context(_registered(plugin))
        yield


@contextmanager
def _registered(plugin: BufferPlugin | BackendPlugin) -> Iterator[None]:
    known: Any = buffer_plugins if isinstance(plugin, BufferPlugin) else backend_plugins
    if plugin.name not in known:
        register_plugin(plugin)
        try:
            yield
        finally:
            known.unregister(plugin.name)
        return
    # Exchanged in place, so that its origin and its place in the order stay.
    before = known[plugin.name]
    known._items[plugin.name] = plugin
    try:
        yield
    finally:
        known._items[plugin.name] = before


def reader_of(plugin: BufferPlugin) -> BufferPlugin:
    """A plugin that reads an on-demand buffer, so that the planner plans it."""
    return BufferPlugin(
        name="conformance_reader",
        spec=BufferSpec,
        provider="dspark_factory.testing.registration:Reader",
        reads=(plugin.name,),
    )


class Reader:
    """Has no buffer and no work; that it is selected is enough."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """Always on."""
        return Gate.on("the conformance suite reads it")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """None."""
        return ()

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to keep."""


class Watch:
    """Stands between the factory and one provider while an assembly lives.

    Attributes:
        plugin: descriptor to register instead of the real one.
        bound: what the provider's ``bind`` returned.
    """

    def __init__(self, plugin: BufferPlugin) -> None:
        self.plugin = replace(plugin, provider="dspark_factory.testing.registration:WatchedProvider")
        self.bound: object = None
        self._path = plugin.provider

    def create(self) -> Any:
        """A new instance of the real provider."""
        return load_object(self._path)()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside, the registered name stands for the watched provider."""
        token = _ACTIVE.set(self)
        try:
            with registered(self.plugin):
                yield
        finally:
            _ACTIVE.reset(token)


_ACTIVE: ContextVar[Watch] = ContextVar("conformance_watch")


class WatchedProvider:
    """Asks the real provider, surrounds each of its buffers with guard zones and keeps what it binds."""

    def __init__(self) -> None:
        self._watch = _ACTIVE.get()
        self._provider = self._watch.create()

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """The provider's own answer."""
        return self._provider.gate(spec, dims)

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """The provider's own requests, each between two guard zones of the same kind of memory."""
        guarded: list[BufferRequest] = []
        for request in self._provider.requests(spec, dims):
            guarded += [_guard(request, "before"), request, _guard(request, "behind")]
        return guarded

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        """What the provider binds."""
        self._watch.bound = self._provider.bind(buffers, dims)
        return self._watch.bound


def _guard(request: BufferRequest, side: str) -> BufferRequest:
    return BufferRequest(
        name=f"{GUARD_PREFIX}{side}_{request.name}",
        shape=extents(guard=GUARD_NBYTES),
        dtype=DType.UINT8,
        fill=GUARD_PATTERN,
        baked=False,
        update=request.update,
        role=request.role,
    )
