"""Compressor: every ``ratio`` tokens become one entry.

Heavily compressed layers: ``c_j = Σ_i softmax_i(score_i) ⊙ kv_i`` over the group's own tokens, softmax per
channel. Sparse layers overlap: the previous group's tokens contribute their first half of the channels, the
group's own tokens their second half. Then RMS norm and rotation at the group's first position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dspark_factory.attention.rope import rotate
from dspark_factory.attention.tables import EntryTables
from dspark_factory.planning.dims import LayerType


class Compressor:
    """One layer's compressor over its state rings.

    Args:
        layer_type: sparse layers overlap, heavily compressed ones do not.
        state: ``[slots, ring, 2, channels]`` fp32, value and score.
        position_bias: ``[ratio, channels]`` fp32, added to the scores.
        norm_weight: ``[head_dim]`` fp32.
        norm_eps: of the RMS norm.
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
        self._overlaps = layer_type is LayerType.CSA
        self._ratio = position_bias.shape[0]
        self._state = state.flatten(0, 1)
        self._position_bias = position_bias
        self._norm_weight, self._norm_eps = norm_weight, norm_eps

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
        score = score.float() + self._position_bias[positions % self._ratio]
        new = torch.stack([kv.float(), score], dim=1)
        taps = torch.where(
            tables.taps_from_step[..., None, None], new[tables.step_rows], self._state[tables.state_rows]
        )
        self._state.index_copy_(0, tables.state_write_rows, new)
        missing = tables.taps_missing.unsqueeze(-1)
        if self._overlaps:
            half = taps.shape[-1] // 2
            taps = torch.cat(
                [taps[:, :, : self._ratio, :, :half], taps[:, :, self._ratio :, :, half:]], dim=2
            )
        weights = taps[..., 1, :].masked_fill(missing, float("-inf")).softmax(dim=2)
        entries = (taps[..., 0, :] * weights).masked_fill(missing, 0.0).sum(dim=2)
        scale = torch.rsqrt(entries.square().mean(-1, keepdim=True) + self._norm_eps)
        return rotate(entries * scale * self._norm_weight, tables.turn).flatten(0, 1)
