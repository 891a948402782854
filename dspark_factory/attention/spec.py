"""Options of the built-in backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from dspark_factory.api import BackendSpec


@dataclass(kw_only=True)
class ReferenceBackendSpec(BackendSpec):
    """Plain torch with fp32 accumulation: the truth for every other backend."""

    kind: str = "reference"


class AttentionKernel(Enum):
    """Kernels that ``backend=flashinfer`` may choose from."""

    cluster = "cluster"
    """This project's kernel for Hopper: 1 to 8 blocks of a cluster share a row's list."""
    fa3 = "fa3"
    """FlashInfer's MLA kernel for Hopper."""
    fa2 = "fa2"
    """FlashInfer's MLA kernel for older devices."""


@dataclass(kw_only=True)
class FlashInferBackendSpec(BackendSpec):
    """Attention kernels on CUDA, bfloat16 with fp32 accumulation."""

    kind: str = "flashinfer"
    kernels: list[AttentionKernel] = field(
        default_factory=lambda: [AttentionKernel.cluster, AttentionKernel.fa3]
    )
    """Kernels that AUTOTUNE times for every shape that is captured; those that the device lacks are left out."""
    batch_invariant: bool = False
    """Split no list over blocks, so that a row's result is the same bits in a batch of any size."""
