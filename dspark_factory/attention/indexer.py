"""Lightning indexer: which compressed entries a row attends to.

``score(p, j) = D^-0.5 · H^-0.5 · Σ_h w_h · ReLU(q_h · k_j)``, then the top ``index_topk`` of the entries that are
complete at p.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark_factory.attention.compressor import Compressor
from dspark_factory.attention.rope import rotate
from dspark_factory.attention.tables import StepTables
from dspark_factory.planning.dims import LayerType


def top_entries(scores: Tensor, counts: Tensor, topk: int) -> Tensor:
    """The ``topk`` best entries of each row among its first ``counts``; a pure function of the two.

    Scores tie at exactly zero whenever ReLU closes every head, and a tie that falls differently in a verify row
    and in the later decode of the same token would make speculation lossy. So ties go to the earlier entry:
    every score becomes an integer that no other entry shares, ordered by score, then by entry.

    Args:
        scores: ``[rows, entries]`` fp32.
        counts: ``[rows]`` int64.
        topk: entries to keep.

    Returns:
        ``[rows, min(topk, entries)]`` int64 in ascending order; missing ones are −1 and come last.
    """
    entries = scores.shape[1]
    entry = torch.arange(entries, device=scores.device)
    eligible = entry < counts.unsqueeze(1)
    # Adding zero turns −0.0 into 0.0. Flipping the magnitude bits of negatives makes integer order float order.
    bits = (scores.float() + 0.0).view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    unique = (ordered.long() << 32) + (entries - 1 - entry)
    unique = unique.masked_fill(~eligible, torch.iinfo(torch.int64).min)
    chosen = unique.topk(min(topk, entries), dim=-1, sorted=False).indices
    chosen = torch.where(chosen < counts.unsqueeze(1), chosen, entries).sort(dim=-1).values
    return torch.where(chosen < entries, chosen, -1)


class Indexer:
    """One sparse layer's indexer over its key pool.

    Args:
        compressor: of the indexer's own keys.
        keys: ``[pages, entries per page, index_head_dim]``.
        topk: entries to keep per row.
    """

    def __init__(self, compressor: Compressor, *, keys: Tensor, topk: int) -> None:
        self.compressor, self.keys = compressor, keys
        self._topk, self._flat_keys = topk, keys.flatten(0, 1)

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, score: Tensor, tables: StepTables) -> Tensor:
        """Write the step's keys, then select.

        Args:
            q: ``[rows, index heads, index_head_dim]``, not yet rotated; overwritten.
            weights: ``[rows, index heads]`` head weights.
            kv: ``[rows, channels]`` projected values of the indexer's compressor.
            score: ``[rows, channels]`` projected scores of it.
            tables: of the step.

        Returns:
            ``[rows, topk]`` int64 entries in ascending order; −1 where there are fewer.
        """
        entries = tables.csa
        assert entries is not None
        new = self.compressor.forward(kv, score, tables.rows.position, entries)
        self._flat_keys.index_copy_(0, entries.index_write_rows, new.to(self.keys.dtype))
        q = rotate(q, tables.turns[LayerType.CSA].forward.unsqueeze(1))
        return top_entries(self._scores(q, weights, tables), entries.counts, self._topk)

    def _scores(self, q: Tensor, weights: Tensor, tables: StepTables) -> Tensor:
        """``[rows, entries]`` fp32 over all entries that a request may have, complete or not.

        Rows are brought into (request, offset) form so that a request's keys are gathered once.
        """
        assert tables.csa is not None
        heads, channels = q.shape[1:]
        requests, width = tables.dense_rows.shape
        keys = self._flat_keys[tables.csa.index_rows].float()
        dense = q[tables.dense_rows].float().reshape(requests, width * heads, channels)
        products = torch.bmm(dense, keys.transpose(1, 2)).relu_().view(requests, width, heads, -1)
        scaled = weights.float() * (heads**-0.5 * channels**-0.5)
        summed = torch.matmul(scaled[tables.dense_rows].unsqueeze(2), products).squeeze(2)
        return summed[tables.rows.request, tables.offsets]
