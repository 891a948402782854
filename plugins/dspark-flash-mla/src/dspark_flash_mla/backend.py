"""The backend: one kernel for all shapes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import ref

from dspark_factory.api import BufferRequest, Buffers, KeyLists, LayerAttention
from dspark_factory.planning.dims import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_flash_mla import FlashMlaBackendSpec

LIST_MULTIPLE = 64
"""The kernel reads lists in tiles of this length."""


class FlashMlaBackend:
    """Queries and output pass through bfloat16; the cache is read as it is."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        """What the kernel cannot serve, whatever the machine."""
        reasons = []
        if dims.device_kind != "cuda":
            reasons.append("its kernel runs on CUDA only; set device=cuda")
        if (dims.head_dim, dims.rope_head_dim) != (512, 64):
            reasons.append(
                f"head_dim is {dims.head_dim} with {dims.rope_head_dim} channels rotated, its cache has 512 with 64"
            )
        if dims.num_heads not in (64, 128):
            reasons.append(f"{dims.num_heads} heads, its kernel takes 64 or 128")
        return reasons

    def machine_reasons(self, dims: Dims) -> Sequence[str]:
        """A missing package, or a device that is not Hopper."""
        import torch

        reasons = []
        if find_spec("flash_mla") is None:
            reasons.append("Python package sgl-flash-mla is missing; pip install 'dspark-flash-mla[cuda]'")
        if torch.cuda.get_device_capability() != (9, 0):
            reasons.append(f"{torch.cuda.get_device_name()} is no Hopper GPU (compute capability 9.0)")
        return reasons

    def requests(self, spec: FlashMlaBackendSpec, dims: Dims) -> Sequence[BufferRequest]:
        """None: the kernel takes its scratch memory from the graph's pool."""
        return ()

    def bind(self, spec: FlashMlaBackendSpec, buffers: Buffers, dims: Dims) -> None:
        """Nothing is planned yet."""
        self._planned_for: ref[Tensor] | None = None
        self._schedule: Any = None

    def forward(self, q: Tensor, layer: LayerAttention, keys: KeyLists) -> Tensor:
        """Attend; see :class:`dspark_factory.api.AttentionBackend`."""
        import torch
        from flash_mla import flash_mla_with_kvcache
        from torch.nn.functional import pad

        store: Any = layer.kv
        missing = -keys.rows.shape[1] % LIST_MULTIPLE
        rows = pad(keys.rows, (0, missing), value=-1) if missing else keys.rows
        out, _ = flash_mla_with_kvcache(
            q.to(torch.bfloat16).unsqueeze(1),
            store.cache,
            None,
            None,
            q.shape[-1],
            self._schedule_for(keys.lens, rows.shape),
            softmax_scale=q.shape[-1] ** -0.5,
            is_fp8_kvcache=True,
            indices=rows.unsqueeze(1),
            attn_sink=layer.sinks,
            topk_length=keys.lens,
            use_legacy=True,
            kv_format="V4",
        )
        return out.squeeze(1).to(q.dtype)

    def _schedule_for(self, lens: Tensor, shape: Any) -> Any:
        """One schedule for all layers that share their lengths; the first of them computes it, inside the graph."""
        from flash_mla import get_mla_metadata

        known = None if self._planned_for is None else self._planned_for()
        if known is not lens or self._shape != shape:
            self._schedule, _ = get_mla_metadata(use_legacy=True)
            self._planned_for, self._shape = ref(lens), shape
        return self._schedule
