"""An attention layer that runs decode and verify steps through fused kernels, everything else in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dspark_factory.api import KeyLists
from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.fused.compression import compress
from dspark_factory.attention.fused.rotation import rotate, rotate_and_store
from dspark_factory.attention.fused.scores import index_scores
from dspark_factory.attention.fused.selection import select
from dspark_factory.attention.indexer import Indexer
from dspark_factory.attention.layer import AttentionLayer, IndexInputs, LayerInputs
from dspark_factory.attention.tables import IN_FLIGHT_MODES, EntryTables, StepTables
from dspark_factory.kv.pools import PoolKv
from dspark_factory.planning.dims import Dims


class FusedLayer(AttentionLayer):
    """Seven launches for a sparse layer, attention included; arguments as for the layer that it replaces."""

    def __init__(self, layer_type: Any, *, dims: Dims, **parts: Any) -> None:
        super().__init__(layer_type, **parts)
        self._dims = dims

    def forward(self, inputs: LayerInputs, tables: StepTables) -> Tensor:
        """``[rows, heads, head_dim]`` attention output with the rotation undone."""
        if tables.rows.key.mode in IN_FLIGHT_MODES:
            return super().forward(inputs, tables)
        turn = tables.turns[self.layer_type].forward
        plain = self.kv.pool if isinstance(self.kv, PoolKv) else None
        index_q = None if inputs.index is None else inputs.index.q
        rotate_and_store(
            inputs.q,
            inputs.kv,
            index_q,
            turn,
            pool=plain,
            pool_rows=tables.kv_write_rows,
        )
        if plain is None:
            self.kv.write(tables.kv_write_rows, inputs.kv)
        out = self._backend.forward(inputs.q, self, self._key_lists(inputs, tables))
        rotate(out, turn, inverse=True)
        return out

    def _key_lists(self, inputs: LayerInputs, tables: StepTables) -> KeyLists:
        if self._compressor is None:
            return tables.sliding
        entries = tables.entries(self.layer_type)
        self._store_entries(self._compressor, inputs, tables, entries)
        if self._indexer is None:
            return tables.heavily_compressed
        assert inputs.index is not None
        assert tables.page_table is not None
        scores = self._scores(self._indexer, inputs.index, tables, entries)
        return select(scores, tables.page_table, tables, entries, self._dims)

    def _store_entries(
        self, compressor: Compressor, inputs: LayerInputs, tables: StepTables, entries: EntryTables
    ) -> None:
        kv, score = inputs.compress_kv, inputs.compress_score
        assert kv is not None
        assert score is not None
        if isinstance(self.kv, PoolKv):
            pool, start = self.kv.pool, self._dims.entry_region_start
            compress(compressor, kv, score, tables, entries, target=pool, target_start=start)
            return
        groups = tables.rows.key.requests * entries.groups
        new = torch.zeros(groups, self._dims.head_dim, device=kv.device)
        compress(compressor, kv, score, tables, entries, target=new, target_start=None)
        self.kv.write(entries.pool_write_rows, new)

    def _scores(
        self, indexer: Indexer, index: IndexInputs, tables: StepTables, entries: EntryTables
    ) -> Tensor:
        """Write the step's index keys, then score all that the requests have."""
        flat = indexer.keys.flatten(0, 1)
        compress(indexer.compressor, index.kv, index.score, tables, entries, target=flat, target_start=0)
        assert tables.page_table is not None
        return index_scores(
            index.q,
            index.weights,
            indexer.keys,
            tables.page_table,
            tables,
            ratio=self._dims.csa_ratio,
            entries=entries.most,
        )
