"""Compressor: every ``ratio`` tokens become one entry.

Heavily compressed layers: ``c_j = Σ_i softmax_i(score_i) ⊙ kv_i`` over the group's own tokens, softmax per
channel. Sparse layers overlap: the previous group's tokens contribute their first half of the channels, the
group's own tokens their second half. Then RMS norm and rotation at the group's first position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark_factory.attention.entries import EntryTables
from dspark_factory.attention.rope import rotate
from dspark_factory.planning.dims import LayerType


class Compressor:
    """One layer's compressor over its state rings.

    Args:
        layer_type: sparse layers overlap, heavily compressed ones do not.
        state: ``[slots, ring, 2, channels]`` fp32, value and score.
        position_bias: ``[ratio, channels]`` fp32, added to the scores.
        norm_weight: ``[head_dim]`` fp32.
        norm_eps: of the RMS norm.

    Attributes:
        ring_rows: rows of a slot's ring.
        overlaps: whether a group also takes the first half of the channels of the previous group's tokens.
    """

    def __init__(
        self,
        layer_type: LayerType,
        *,
        state: Tensor,
        position_bias: Tensor,
        norm_weight: Tensor,
        norm_eps: float,
    ) -> None:
        self.overlaps = layer_type is LayerType.CSA
        self.ring_rows = state.shape[1]
        self.state = state.flatten(0, 1)
        self.position_bias = position_bias
        self.norm_weight, self.norm_eps = norm_weight, norm_eps

    def forward(self, kv: Tensor, score: Tensor, positions: Tensor, tables: EntryTables) -> Tensor:
        """Entries of the groups that this step completes; state is read first, then overwritten.

        Args:
            kv: ``[rows, channels]`` projected values.
            score: ``[rows, channels]`` projected scores, without position bias.
            positions: ``[rows]``.
            tables: of the layer type.

        Returns:
            ``[requests * groups, head_dim]`` fp32, rotated; rows of incomplete groups are meaningless.
        """
        ratio, sources = self.position_bias.shape[0], tables.taps
        score = score.float() + self.position_bias[positions % ratio]
        new = torch.stack([kv.float(), score], dim=1)
        taps = torch.where(
            sources.from_step[..., None, None], new[sources.step_rows], self.state[sources.state_rows]
        )
        self.state.index_copy_(0, tables.state_write_rows, new)
        missing = sources.missing.unsqueeze(-1)
        if self.overlaps:
            half = taps.shape[-1] // 2
            taps = torch.cat([taps[:, :, :ratio, :, :half], taps[:, :, ratio:, :, half:]], dim=2)
        weights = taps[..., 1, :].masked_fill(missing, float("-inf")).softmax(dim=2)
        entries = (taps[..., 0, :] * weights).masked_fill(missing, 0.0).sum(dim=2)
        scale = torch.rsqrt(entries.square().mean(-1, keepdim=True) + self.norm_eps)
        return rotate(entries * scale * self.norm_weight, tables.turn).flatten(0, 1)
