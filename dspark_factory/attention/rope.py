"""Partial interleaved rotary embedding, and its inverse.

The last ``rope_head_dim`` channels rotate in pairs ``(2 i, 2 i + 1)``. Sliding-window layers rotate with a plain
base; compressing layers with another base and YaRN's frequency ramp, without its magnitude factor (DeepSeek-V4's
reference multiplies neither cosines nor the softmax scale).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def inverse_frequencies(rope_head_dim: int, theta: float, scaling: dict[str, float] | None = None) -> Tensor:
    """``[rope_head_dim / 2]`` fp32 angular frequencies.

    Args:
        rope_head_dim: rotated channels.
        theta: base.
        scaling: YaRN's ``factor``, ``original_max_position_embeddings``, ``beta_fast`` and ``beta_slow``.
    """
    exponents = torch.arange(0, rope_head_dim, 2, dtype=torch.float32) / rope_head_dim
    frequencies = 1.0 / theta**exponents
    if scaling is None:
        return frequencies
    original = scaling["original_max_position_embeddings"]

    def dimension(rotations: float) -> float:
        return rope_head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(scaling.get("beta_fast", 32.0))), 0)
    high = min(math.ceil(dimension(scaling.get("beta_slow", 1.0))), rope_head_dim - 1)
    ramp = (torch.arange(rope_head_dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    interpolated = ramp.clamp(0, 1)
    return frequencies / scaling["factor"] * interpolated + frequencies * (1 - interpolated)


def rotations(positions: Tensor, frequencies: Tensor) -> Tensor:
    """Unit complex numbers ``exp(i · position · frequency)``: ``[..., rope_head_dim / 2]`` complex64."""
    angles = positions.to(torch.float32).unsqueeze(-1) * frequencies
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate the last channels of ``x`` in place, and return it.

    Args:
        x: ``[..., channels]``, freshly computed: it is overwritten.
        turn: complex ``[..., rope_head_dim / 2]``, broadcastable; its conjugate undoes the rotation.
    """
    rope = x[..., -2 * turn.shape[-1] :]
    if x.dtype is torch.float32:
        torch.view_as_complex(rope.unflatten(-1, (-1, 2))).mul_(turn)
        return x
    pairs = torch.view_as_complex(rope.float().unflatten(-1, (-1, 2)))
    rope.copy_(torch.view_as_real(pairs * turn).flatten(-2))
    return x
