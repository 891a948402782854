"""Attention: rows and index tables, the layer mathematics, and the backends that attend."""

from dspark_factory.api import BackendPlugin
from dspark_factory.attention.spec import ReferenceBackendSpec

PLUGINS = (
    BackendPlugin(
        name="reference",
        spec=ReferenceBackendSpec,
        backend="dspark_factory.attention.reference:ReferenceBackend",
    ),
)
