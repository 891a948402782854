"""One layer's attention between its projections: rotate, write KV, compress, select, attend, rotate back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_factory.api import AttentionBackend
from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.indexer import Indexer
from dspark_factory.attention.rope import rotate
from dspark_factory.attention.tables import EntryTables, StepTables, Turn
from dspark_factory.planning.dims import LayerType


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInputs:
    """Projections for the indexer: ``q [rows, heads, channels]``, ``weights [rows, heads]``, ``kv``, ``score``."""

    q: Tensor
    weights: Tensor
    kv: Tensor
    score: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInputs:
    """Projections of one layer's input, not yet rotated.

    Attributes:
        q: ``[rows, heads, head_dim]``; overwritten.
        kv: ``[rows, head_dim]``; overwritten.
        compress_kv: ``[rows, channels]`` of the compressor; ``None`` in sliding-window layers.
        compress_score: same shape.
        index: of the indexer; sparse layers only.
    """

    q: Tensor
    kv: Tensor
    compress_kv: Tensor | None = None
    compress_score: Tensor | None = None
    index: IndexInputs | None = None


class AttentionLayer:
    """Attention of one layer over its KV pool; implements :class:`~dspark_factory.api.LayerAttention`.

    Args:
        layer_type: which compressed entries there are.
        pool: ``[pool rows, head_dim]``.
        sinks: ``[heads]`` fp32.
        backend: attends over the index lists.
        compressor: of compressing layers.
        indexer: of sparse layers.
    """

    def __init__(
        self,
        layer_type: LayerType,
        *,
        pool: Tensor,
        sinks: Tensor,
        backend: AttentionBackend,
        compressor: Compressor | None = None,
        indexer: Indexer | None = None,
    ) -> None:
        self.layer_type, self.pool, self.sinks = layer_type, pool, sinks
        self._backend, self._compressor, self._indexer = backend, compressor, indexer

    @property
    def kind(self) -> str:
        """Layer type, named as in checkpoints."""
        return self.layer_type.value

    def forward(self, inputs: LayerInputs, tables: StepTables) -> Tensor:
        """``[rows, heads, head_dim]`` attention output with the rotation undone."""
        turn = self._turn(tables)
        q = rotate(inputs.q, turn.forward.unsqueeze(1))
        kv = rotate(inputs.kv, turn.forward)
        self.pool.index_copy_(0, tables.kv_write_rows, kv.to(self.pool.dtype))
        indices = self._indices(inputs, tables)
        out = self._backend.forward(q, self, indices)
        if tables.kv_keep_rows is not None:
            self.pool.index_copy_(0, tables.kv_keep_rows, self.pool[tables.kv_write_rows])
        return rotate(out, turn.inverse.unsqueeze(1))

    def _turn(self, tables: StepTables) -> Turn:
        if self.layer_type is LayerType.SLIDING:
            return tables.main
        assert tables.compress is not None
        return tables.compress

    def _indices(self, inputs: LayerInputs, tables: StepTables) -> Tensor:
        """Compress first, so that a row sees the group that an earlier row of the same step completes."""
        if self._compressor is None:
            return tables.window
        assert inputs.compress_kv is not None
        assert inputs.compress_score is not None
        entries = tables.entries(self.layer_type)
        new = self._compressor.forward(
            inputs.compress_kv, inputs.compress_score, tables.rows.position, entries
        )
        self.pool.index_copy_(0, entries.pool_write_rows, new.to(self.pool.dtype))
        return torch.cat([tables.window, self._selected(inputs, tables, entries)], dim=1)

    def _selected(self, inputs: LayerInputs, tables: StepTables, entries: EntryTables) -> Tensor:
        """``[rows, entries]`` pool rows of the compressed entries that each row sees; −1 for none."""
        pool_rows = entries.pool_rows[tables.rows.request]
        if self._indexer is None:
            entry = torch.arange(pool_rows.shape[1], device=pool_rows.device)
            return torch.where(entry < entries.counts.unsqueeze(1), pool_rows, -1)
        assert inputs.index is not None
        index = inputs.index
        chosen = self._indexer.forward(index.q, index.weights, index.kv, index.score, tables)
        return torch.where(chosen >= 0, pool_rows.gather(1, chosen.clamp(min=0)), -1)
