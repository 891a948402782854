"""FlashMLA for DSpark Factory: descriptors of the backend and of its cache; no torch."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_factory.api import BackendPlugin, BackendSpec, BufferPlugin, BufferSpec

__all__ = ["FlashMlaBackendSpec", "backend", "kv"]


@dataclass(kw_only=True)
class FlashMlaBackendSpec(BackendSpec):
    """FlashMLA's sparse decode kernel over its own 584-byte cache."""

    kind: str = "flash_mla"


kv = BufferPlugin(
    name="flash_mla_kv",
    spec=BufferSpec,
    provider="dspark_flash_mla.cache:FlashMlaKv",
    stores_kv=True,
)

backend = BackendPlugin(
    name="flash_mla",
    spec=FlashMlaBackendSpec,
    backend="dspark_flash_mla.backend:FlashMlaBackend",
    config_package="dspark_flash_mla.conf",
    kv="flash_mla_kv",
)
