"""Attention: rows and index tables, the layer mathematics, and the backends that attend.

Each backend's descriptor is an entry point of this distribution (``pyproject.toml``).
"""

from dspark_factory.api import BackendPlugin
from dspark_factory.attention.spec import FlashInferBackendSpec, ReferenceBackendSpec

REFERENCE = BackendPlugin(
    name="reference",
    spec=ReferenceBackendSpec,
    backend="dspark_factory.attention.reference:ReferenceBackend",
)

FLASHINFER = BackendPlugin(
    name="flashinfer",
    spec=FlashInferBackendSpec,
    backend="dspark_factory.attention.flashinfer.backend:FlashInferBackend",
)
"""Hopper kernels, built by FlashInfer's compiler."""
