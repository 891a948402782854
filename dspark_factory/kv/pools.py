"""KV pools: one per layer type, every layer's rows in one tensor.

A pool row is one latent vector, key and value at once. The rows of a layer are, in this order: a ring of the
sliding window per request slot, in-flight rows (prefill chunks and draft blocks, which attend before anything of
theirs is kept), and compressed entries by page. One tensor per layer means one base address and one index list
per row, which is what attention kernels take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, Gate, extents
from dspark_factory.planning.dims import Dims, LayerType

if TYPE_CHECKING:
    from torch import Tensor

POOL_NAMES = {LayerType.SLIDING: "kv_sliding", LayerType.CSA: "kv_csa", LayerType.HCA: "kv_hca"}


class KvPools:
    """``kv_sliding``, ``kv_csa``, ``kv_hca``: ``[layers, pool rows, head_dim]``, for the layer types present."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """Always on."""
        return Gate.on()

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """One pool per layer type of the model."""
        return [
            BufferRequest(
                name=name,
                shape=extents(
                    layers=dims.count(layer_type), rows=dims.pool_rows(layer_type), channels=dims.head_dim
                ),
                dtype=dims.kv_dtype,
            )
            for layer_type, name in POOL_NAMES.items()
            if dims.count(layer_type)
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundKvPools:
        """Keep the pools by layer type."""
        return BoundKvPools(
            {kind.value: buffers[name] for kind, name in POOL_NAMES.items() if dims.count(kind)}
        )


class BoundKvPools:
    """Implements :class:`~dspark_factory.api.StoresKv`."""

    def __init__(self, pools: Mapping[str, Tensor]) -> None:
        self._pools = pools

    def layer(self, layer_type: str, place: int) -> PoolKv:
        """Rows of the ``place``-th layer of a type."""
        return PoolKv(self._pools[layer_type][place])


class PoolKv:
    """Plain rows of one layer; implements :class:`~dspark_factory.api.LayerKv`.

    Attributes:
        pool: ``[pool rows, head_dim]``.
    """

    def __init__(self, pool: Tensor) -> None:
        self.pool = pool

    def write(self, rows: Tensor, kv: Tensor) -> None:
        """Round ``kv [n, head_dim]`` to the pool's type and store it at ``rows [n]``."""
        self.pool.index_copy_(0, rows, kv.to(self.pool.dtype))

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy rows ``source [n]`` to ``target [n]``."""
        self.pool.index_copy_(0, target, self.pool[source])

    def read(self, rows: Tensor) -> Tensor:
        """Rows ``rows [n]`` in fp32."""
        return self.pool[rows].float()


class IndexKeys:
    """``index_keys``: ``[layers, pages, entries per page, index_head_dim]`` keys of the lightning indexer."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On when the model has sparse layers."""
        count = dims.count(LayerType.CSA)
        return (
            Gate.on(f"{count} compressed sparse layers") if count else Gate.off("no compressed sparse layer")
        )

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """One key per compressed entry and sparse layer, plus a scratch page."""
        return [
            BufferRequest(
                name="index_keys",
                shape=extents(
                    layers=dims.count(LayerType.CSA),
                    pages=dims.kv_pages + 1,
                    entries=dims.entries_per_page(LayerType.CSA),
                    channels=dims.index_head_dim,
                ),
                dtype=dims.kv_dtype,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to do per step."""
