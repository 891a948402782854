"""Compressor-state rings: projected values and scores of the tokens that a later group still needs.

A ring holds what the next group reads back and the rows that a verify step may have written ahead and lost, so
its length follows from the draft-token count and no count is out of reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Extent, Gate
from dspark_factory.planning.dims import Dims, LayerType


class CompressorState:
    """``csa_state``, ``csa_index_state``, ``hca_state``: ``[layers, slots, ring rows, 2, channels]`` fp32.

    The fourth dimension is value and score. Sparse layers keep twice the head dimension in channels: a token's
    contribution to the next group, then to its own.
    """

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On when any layer compresses."""
        return Gate.on("layers compress") if dims.has_compressed_layers else Gate.off("no layer compresses")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Rings for the layer types present."""
        requests = []
        if dims.count(LayerType.CSA):
            requests += [
                _ring("csa_state", LayerType.CSA, 2 * dims.head_dim, dims),
                _ring("csa_index_state", LayerType.CSA, 2 * dims.index_head_dim, dims),
            ]
        if dims.count(LayerType.HCA):
            requests.append(_ring("hca_state", LayerType.HCA, dims.head_dim, dims))
        return requests

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to do per step: the layers read and write the rings."""


def _ring(name: str, layer_type: LayerType, channels: int, dims: Dims) -> BufferRequest:
    return BufferRequest(
        name=name,
        shape=(
            Extent("layers", dims.count(layer_type)),
            Extent("slots", dims.request_slots),
            Extent("ring rows", dims.state_ring_rows(layer_type)),
            Extent("value and score", 2),
            Extent("channels", channels),
        ),
        dtype=DType.FLOAT32,
    )
