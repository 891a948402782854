"""The reference backend: attention over index lists in plain torch with fp32 accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dspark_factory.api import BufferRequest, Buffers, KeyLists, LayerAttention
from dspark_factory.planning.dims import Dims

if TYPE_CHECKING:
    from torch import Tensor


class ReferenceBackend:
    """Serves every geometry on every device; gathers the keys of each row."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        """None: plain torch serves everything."""
        return ()

    def requests(self, spec: Any, dims: Dims) -> Sequence[BufferRequest]:
        """No workspace."""
        return ()

    def bind(self, spec: Any, buffers: Buffers, dims: Dims) -> None:
        """Nothing to keep."""

    def forward(self, q: Tensor, layer: LayerAttention, keys: KeyLists) -> Tensor:
        """One joint softmax over all listed keys, with the sink in the denominator only."""
        from dspark_factory.attention.softmax import attend

        return attend(q, layer.pool, keys.rows.long(), layer.sinks)
