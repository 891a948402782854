"""All that a plugin author imports: specs, requests, gates and the provider and backend protocols.

This package is light on purpose: no torch, so that descriptors can be read by ``--help``, tab completion
and ``task=plan``.
"""

from dspark_factory.api.backends import (
    AttentionBackend,
    KeyLists,
    LayerAttention,
    LayerKv,
    MachineReasons,
    StoresKv,
    Tunes,
)
from dspark_factory.api.buffers import (
    BackendSpec,
    BufferRequest,
    BufferSpec,
    DType,
    Extent,
    Gate,
    Role,
    Update,
    extents,
)
from dspark_factory.api.plugins import API_VERSION, BackendPlugin, BufferPlugin
from dspark_factory.api.providers import (
    BufferProvider,
    Buffers,
    ComputesInStep,
    ObservesOutcome,
    Reports,
    StagesInputs,
)
from dspark_factory.api.steps import StepBatch, StepOutcome, StepState

__all__ = [
    "API_VERSION",
    "AttentionBackend",
    "BackendPlugin",
    "BackendSpec",
    "BufferPlugin",
    "BufferProvider",
    "BufferRequest",
    "BufferSpec",
    "Buffers",
    "ComputesInStep",
    "DType",
    "Extent",
    "Gate",
    "KeyLists",
    "LayerAttention",
    "LayerKv",
    "MachineReasons",
    "ObservesOutcome",
    "Reports",
    "Role",
    "StagesInputs",
    "StepBatch",
    "StepOutcome",
    "StepState",
    "StoresKv",
    "Tunes",
    "Update",
    "extents",
]
