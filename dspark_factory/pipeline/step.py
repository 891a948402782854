"""One step: the region that is captured. Reads staged buffers, writes KV, state and outputs; no host sync."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dspark_factory.api import Buffers, ComputesInStep, StepState
from dspark_factory.attention.rows import StepRows, expand_rows
from dspark_factory.attention.tables import IN_FLIGHT_MODES, StepTables, build_tables
from dspark_factory.models.base import StepModel
from dspark_factory.pipeline.recorder import provider_scope
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import GraphKey, LayoutForm, Mode
from dspark_factory.speculative.acceptance import accept_greedy, accept_sampled, sample, softmax_at


class Step:
    """The target's step for any key, over one arena.

    Args:
        dims: geometry.
        buffers: the arena's views.
        model: runs the rows.
        computes: bound providers with work inside the region, by name, in dependency order.
    """

    def __init__(
        self,
        dims: Dims,
        buffers: Buffers,
        model: StepModel,
        computes: Sequence[tuple[str, ComputesInStep]],
    ) -> None:
        self._dims, self._buffers, self._model = dims, buffers, model
        self._computes = tuple(computes)

    def run(self, key: GraphKey) -> None:
        """Run the step of a key; everything it reads was staged before, everything it yields lies in buffers."""
        tables = self._tables(key)
        rows = tables.rows
        token_ids = self._buffers.take("token_ids", key.rows).long()
        hidden = self._model.hidden(token_ids, tables)
        if key.mode is Mode.TARGET_VERIFY:
            target_tokens, accept_lens = self._verify(key, tables, token_ids, hidden)
        else:
            target_tokens, accept_lens = self._next_tokens(key, rows, hidden), None
        for name, bound in self._computes:
            state = StepState(key=key, rows=rows, target_tokens=target_tokens, accept_lens=accept_lens)
            with provider_scope(name):
                bound.compute(state)

    def _tables(self, key: GraphKey) -> StepTables:
        """Row and index tables, by one kernel where the layers are fused too."""
        buffers, count = self._buffers, key.requests
        ragged = key.form is LayoutForm.RAGGED
        row_lens = start_loc = None
        if key.mode is Mode.EXTEND:
            row_lens, start_loc = buffers.take("chunk_lens", count), buffers.take("chunk_start_loc", count)
        elif key.mode is Mode.TARGET_VERIFY:
            row_lens = buffers.take("extend_seq_lens", count)
            start_loc = buffers.take("extend_start_loc", count) if ragged else None
        slots, prefixes = buffers.take("request_slots", count), buffers.take("prefix_lens", count)
        page_table, frequencies = self._updated_page_table(), self._model.frequencies
        if self._dims.fused_kernels and key.mode not in IN_FLIGHT_MODES:
            from dspark_factory.attention.fused.step_tables import build_fused_tables

            return build_fused_tables(
                key,
                self._dims,
                frequencies,
                request_slots=slots,
                prefix_lens=prefixes,
                row_lens=row_lens,
                start_loc=start_loc,
                page_table=page_table,
            )
        rows = expand_rows(
            key,
            self._dims,
            request_slots=slots,
            prefix_lens=prefixes,
            row_lens=row_lens,
            start_loc=start_loc,
        )
        return build_tables(rows, self._dims, frequencies, page_table)

    def _updated_page_table(self) -> Tensor | None:
        if "page_table" not in self._buffers:
            return None
        page_table, updates = self._buffers["page_table"], self._buffers["page_updates"].long()
        page_table.index_put_((updates[:, 0], updates[:, 1]), updates[:, 2].int())
        return page_table

    def _next_tokens(self, key: GraphKey, rows: StepRows, hidden: Tensor) -> Tensor:
        """One token per request, from its last row (decode and extend)."""
        last = (rows.first_row + rows.row_lens - 1).clamp(min=0)
        if "logits" in self._buffers:
            logits = self._model.logits(hidden)
            self._buffers.take("logits", key.rows).copy_(logits)
            logits = logits[last]
        else:
            logits = self._model.logits(hidden if key.mode is Mode.DECODE else hidden[last])
        out = self._buffers.take("target_tokens", key.requests)
        if self._dims.sampling:
            temperatures = self._buffers.take("temperatures", key.requests)
            uniforms = self._buffers.take("uniforms", key.requests)[:, 0]
            return out.copy_(sample(softmax_at(logits, temperatures), uniforms))
        return out.copy_(logits.argmax(-1))

    def _verify(
        self, key: GraphKey, tables: StepTables, token_ids: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Target tokens by row and committed tokens by request."""
        logits = self._model.logits(hidden)
        if "logits" in self._buffers:
            self._buffers.take("logits", key.rows).copy_(logits)
        rows, dense = tables.rows, tables.dense_rows
        tokens = self._buffers.take("target_tokens", key.rows)
        if self._dims.sampling:
            accept_lens, chosen = accept_sampled(
                softmax_at(logits[dense], self._temperatures(key)),
                token_ids[dense],
                rows.row_lens,
                uniforms=self._buffers.take("uniforms", key.requests)[:, : key.width],
            )
            tokens.copy_(chosen[rows.request, tables.offsets])
        else:
            tokens.copy_(logits.argmax(-1))
            accept_lens = accept_greedy(tokens[dense], token_ids[dense], rows.row_lens)
        return tokens, self._buffers.take("accept_lens", key.requests).copy_(accept_lens)

    def _temperatures(self, key: GraphKey) -> Tensor:
        return self._buffers.take("temperatures", key.requests).unsqueeze(1).expand(-1, key.width)
