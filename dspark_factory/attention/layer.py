"""One layer's attention between its projections: rotate, write KV, compress, select, attend, rotate back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dspark_factory.api import AttentionBackend, KeyLists, LayerKv
from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.entries import EntryTables
from dspark_factory.attention.indexer import Indexer
from dspark_factory.attention.rope import rotate
from dspark_factory.attention.tables import StepTables
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
    """Attention of one layer over its KV store; implements :class:`~dspark_factory.api.LayerAttention`.

    Args:
        layer_type: which compressed entries there are.
        kv: the layer's store.
        sinks: ``[heads]`` fp32.
        backend: attends over the key lists.
        compressor: of compressing layers.
        indexer: of sparse layers.
    """

    def __init__(
        self,
        layer_type: LayerType,
        *,
        kv: LayerKv,
        sinks: Tensor,
        backend: AttentionBackend,
        compressor: Compressor | None = None,
        indexer: Indexer | None = None,
    ) -> None:
        self.layer_type, self.kv, self.sinks = layer_type, kv, sinks
        self._backend, self._compressor, self._indexer = backend, compressor, indexer

    @property
    def kind(self) -> str:
        """Layer type, named as in checkpoints."""
        return self.layer_type.value

    @property
    def pool(self) -> Tensor:
        """``[pool rows, head_dim]`` of a store that keeps plain rows; others have none."""
        store: Any = self.kv
        return store.pool

    def forward(self, inputs: LayerInputs, tables: StepTables) -> Tensor:
        """``[rows, heads, head_dim]`` attention output with the rotation undone."""
        turn = tables.turns[self.layer_type]
        q = rotate(inputs.q, turn.forward.unsqueeze(1))
        kv = rotate(inputs.kv, turn.forward)
        self.kv.write(tables.kv_write_rows, kv)
        out = self._backend.forward(q, self, self._keys(inputs, tables))
        if tables.kv_keep_rows is not None:
            self.kv.move(tables.kv_write_rows, tables.kv_keep_rows)
        return rotate(out, turn.inverse.unsqueeze(1))

    def _keys(self, inputs: LayerInputs, tables: StepTables) -> KeyLists:
        """Compress first, so that a row sees the group that an earlier row of the same step completes."""
        if self._compressor is None:
            return tables.sliding
        assert inputs.compress_kv is not None
        assert inputs.compress_score is not None
        entries = tables.entries(self.layer_type)
        new = self._compressor.forward(
            inputs.compress_kv, inputs.compress_score, tables.rows.position, entries
        )
        self.kv.write(entries.pool_write_rows, new)
        if self._indexer is None:
            return tables.heavily_compressed
        return tables.sparse_join.join(tables.window, self._selected(self._indexer, inputs, tables, entries))

    def _selected(
        self, indexer: Indexer, inputs: LayerInputs, tables: StepTables, entries: EntryTables
    ) -> Tensor:
        """``[rows, entries]`` pool rows of the entries that the indexer selects for each row; −1 for none."""
        assert inputs.index is not None
        index = inputs.index
        chosen = indexer.forward(index.q, index.weights, index.kv, index.score, tables)
        pool_rows = entries.pool_rows[tables.rows.request]
        return torch.where(chosen >= 0, pool_rows.gather(1, chosen.clamp(min=0)), -1)
