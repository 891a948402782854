"""Light descriptors of plugins: what an entry point yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dspark_factory.api.buffers import BackendSpec, BufferSpec

API_VERSION = 1
"""Version of this contract; a plugin made for another one is listed as outdated and never loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlugin:
    """Light descriptor of a buffer provider.

    Attributes:
        name: registered name, equal to the YAML file and the entry point.
        spec: dataclass of its options.
        provider: ``"package.module:Class"``, imported when planned.
        config_package: Python package with the plugin's Hydra configs, or ``None``.
        requires: providers that must be on and come earlier.
        reads: names of on-demand buffers that it reads.
        on_demand: planned only when a selected plugin reads it.
        stores_kv: keeps KV rows (:class:`StoresKv`); the one that the backend names is planned, all others are off.
    """

    kind: ClassVar[str] = "buffers"
    name: str
    spec: type[BufferSpec]
    provider: str
    config_package: str | None = None
    requires: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    on_demand: bool = False
    stores_kv: bool = False
    api_version: int = API_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPlugin:
    """Light descriptor of an attention backend.

    Attributes:
        name: registered name, equal to the YAML file and the entry point.
        spec: dataclass of its options.
        backend: ``"package.module:Class"``, imported when planned.
        config_package: Python package with the plugin's Hydra configs, or ``None``.
        reads: names of on-demand buffers that it reads.
        kv: the buffer plugin whose KV rows it reads; selected with the backend.
    """

    kind: ClassVar[str] = "backends"
    name: str
    spec: type[BackendSpec]
    backend: str
    config_package: str | None = None
    reads: tuple[str, ...] = ()
    kv: str = "kv_pools"
    api_version: int = API_VERSION
