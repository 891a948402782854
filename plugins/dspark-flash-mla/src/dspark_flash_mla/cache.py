"""The cache: quantised when it is written, one buffer per layer type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, extents
from dspark_factory.planning.dims import Dims, LayerType
from dspark_flash_mla.layout import BLOCK_NBYTES, BLOCK_ROWS, DATA_NBYTES, ROW_NBYTES, SCALE_NBYTES

if TYPE_CHECKING:
    from torch import Tensor

NAMES = {
    LayerType.SLIDING: "flash_mla_sliding",
    LayerType.CSA: "flash_mla_csa",
    LayerType.HCA: "flash_mla_hca",
}


class FlashMlaKv:
    """``flash_mla_sliding``, ``flash_mla_csa``, ``flash_mla_hca``: ``[layers, blocks, bytes]`` of the types present."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On; the planner asks only when the backend reads it."""
        return Gate.on("backend=flash_mla reads it")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """One cache per layer type of the model, in whole blocks."""
        return [
            BufferRequest(
                name=name,
                shape=extents(
                    layers=dims.count(kind),
                    blocks=-(-dims.pool_rows(kind) // BLOCK_ROWS),
                    bytes=BLOCK_NBYTES,
                ),
                dtype=DType.UINT8,
            )
            for kind, name in NAMES.items()
            if dims.count(kind)
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundFlashMlaKv:
        """Keep the caches by layer type."""
        return BoundFlashMlaKv(
            {kind.value: buffers[name] for kind, name in NAMES.items() if dims.count(kind)}
        )


class BoundFlashMlaKv:
    """Implements :class:`dspark_factory.api.StoresKv`."""

    def __init__(self, caches: Mapping[str, Tensor]) -> None:
        self._caches = caches

    def layer(self, layer_type: str, place: int) -> FlashMlaLayer:
        """Cache of the ``place``-th layer of a type."""
        return FlashMlaLayer(self._caches[layer_type][place])


class FlashMlaLayer:
    """One layer's cache; implements :class:`dspark_factory.api.LayerKv`.

    Attributes:
        cache: ``[blocks, 64, 1, 584]`` float8_e4m3fn as the kernel takes it: strides say where blocks begin; where
            data and scales lie in a block is the kernel's own knowledge.
        data: ``[blocks, 64, 576]`` uint8.
        scales: ``[blocks, 64, 8]`` uint8.
    """

    def __init__(self, blocks: Tensor) -> None:
        import torch

        count, offset = blocks.shape[0], blocks.storage_offset()
        strides = (BLOCK_NBYTES, ROW_NBYTES, ROW_NBYTES, 1)
        shaped = blocks.as_strided((count, BLOCK_ROWS, 1, ROW_NBYTES), strides, offset)
        self.cache = shaped.view(torch.float8_e4m3fn)
        self.data = blocks.as_strided(
            (count, BLOCK_ROWS, DATA_NBYTES), (BLOCK_NBYTES, DATA_NBYTES, 1), offset
        )
        self.scales = blocks.as_strided(
            (count, BLOCK_ROWS, SCALE_NBYTES),
            (BLOCK_NBYTES, SCALE_NBYTES, 1),
            offset + BLOCK_ROWS * DATA_NBYTES,
        )

    def write(self, rows: Tensor, kv: Tensor) -> None:
        """Quantise ``kv [n, 512]`` and store it at ``rows [n]`` int64."""
        if kv.is_cuda:
            from dspark_flash_mla.kernel import quantise_and_write

            quantise_and_write(self.data, rows, kv)
            return
        from dspark_flash_mla.quantisation import quantise

        data, scales = quantise(kv)
        block, row = rows // BLOCK_ROWS, rows % BLOCK_ROWS
        self.data.index_put_((block, row), data)
        self.scales.index_put_((block, row), scales)

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy rows as they are, from ``source [n]`` to ``target [n]``."""
        for part in (self.data, self.scales):
            kept = part[source // BLOCK_ROWS, source % BLOCK_ROWS]
            part.index_put_((target // BLOCK_ROWS, target % BLOCK_ROWS), kept)

    def read(self, rows: Tensor) -> Tensor:
        """``[n, 512]`` fp32 of ``rows [n]``."""
        from dspark_flash_mla.quantisation import restore

        block, row = rows // BLOCK_ROWS, rows % BLOCK_ROWS
        return restore(self.data[block, row], self.scales[block, row])
