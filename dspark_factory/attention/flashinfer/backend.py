"""The ``flashinfer`` backend: which kernel serves which shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dspark_factory.api import BufferRequest, Buffers, DType, KeyLists, LayerAttention, extents
from dspark_factory.attention.flashinfer.shapes import (
    PLAN_NBYTES,
    WORKSPACE_NBYTES,
    captured_shapes,
    list_lengths,
)
from dspark_factory.attention.spec import AttentionKernel, FlashInferBackendSpec
from dspark_factory.planning.dims import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_factory.attention.flashinfer.kernels import Kernel

HEAD_DIMS = (128, 256, 512)


class FlashInferBackend:
    """Runs the fastest of its kernels for each shape; queries and output pass through bfloat16."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        """What these kernels cannot serve, whatever the machine."""
        reasons = []
        if dims.device_kind != "cuda":
            reasons.append("its kernels run on CUDA only; set device=cuda")
        if dims.head_dim not in HEAD_DIMS:
            reasons.append(
                f"head_dim is {dims.head_dim}, its kernels have {HEAD_DIMS}; use backend=reference"
            )
        if dims.kv_dtype is not DType.BFLOAT16:
            reasons.append(f"device.kv_dtype is {dims.kv_dtype.value}; set device.kv_dtype=bfloat16")
        return reasons

    def machine_reasons(self, dims: Dims) -> Sequence[str]:
        """A missing package or compiler, or a device that none of the kernels knows."""
        from dspark_factory.attention.flashinfer.machine import machine_reasons

        return machine_reasons()

    def requests(self, spec: FlashInferBackendSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Memory of FlashInfer's MLA kernels where they may be chosen; this project's kernel needs none."""
        if not _mla_kinds(spec):
            return ()
        plans = len(captured_shapes(dims)) + len(list_lengths(dims))
        return (
            BufferRequest(
                name="mla_workspace", shape=extents(bytes=WORKSPACE_NBYTES), dtype=DType.UINT8, fill=None
            ),
            BufferRequest(name="mla_plans", shape=extents(plans=plans, bytes=PLAN_NBYTES), dtype=DType.UINT8),
        )

    def bind(self, spec: FlashInferBackendSpec, buffers: Buffers, dims: Dims) -> None:
        """Load the kernels that run on this device."""
        from dspark_factory.attention.flashinfer.choice import KernelChoice

        self._choice = KernelChoice(spec, buffers, dims)

    @contextmanager
    def tuning(self) -> Iterator[None]:
        """Time the kernels for every shape that comes up, under FlashInfer's own tuning mode as well."""
        from flashinfer.autotuner import autotune  # pyright: ignore[reportMissingImports]

        self._choice.timing = True
        try:
            with autotune():
                yield
        finally:
            self._choice.timing = False

    def tuned(self) -> dict[str, Any]:
        """Kernel and microseconds of each, by rows and list length."""
        return self._choice.record()

    def forward(self, q: Tensor, layer: LayerAttention, keys: KeyLists) -> Tensor:
        """Attend; see :class:`~dspark_factory.api.AttentionBackend`."""
        import torch

        pool, queries = layer.pool, q.to(torch.bfloat16).contiguous()
        out = torch.empty_like(queries)
        kernel: Kernel = self._choice.kernel(queries, pool, keys, layer.sinks)
        kernel.run(queries, pool, keys, layer.sinks, out)
        return out.to(q.dtype)


def _mla_kinds(spec: FlashInferBackendSpec) -> list[AttentionKernel]:
    if spec.batch_invariant:
        return []
    return [kind for kind in spec.kernels if kind is not AttentionKernel.cluster]
