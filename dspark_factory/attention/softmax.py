"""Shared-KV attention over index lists, with a sink."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(
    q: Tensor, pool: Tensor, indices: Tensor, sinks: Tensor, *, accumulate: torch.dtype = torch.float32
) -> Tensor:
    """``o_h = Σ_i e^{s_hi} k_i / (e^{z_h} + Σ_i e^{s_hi})`` with ``s_hi = D^-0.5 q_h·k_i``; keys are values.

    Args:
        q: ``[rows, heads, D]``.
        pool: ``[pool rows, D]``.
        indices: ``[rows, keys]`` int64 pool rows; negative ones are skipped, whatever lies behind them.
        sinks: ``[heads]`` fp32, logit of a virtual key with zero value.
        accumulate: type of all products and sums.

    Returns:
        ``[rows, heads, D]`` in the dtype of ``q``, zero for a row without keys.
    """
    keys = pool[indices.clamp(min=0)].to(accumulate)
    scores = torch.bmm(q.to(accumulate), keys.transpose(1, 2)) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(indices.lt(0).unsqueeze(1), float("-inf"))
    sink = sinks.to(accumulate).view(1, -1, 1).expand(q.shape[0], -1, 1)
    weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    return torch.bmm(weights, keys).to(q.dtype)
