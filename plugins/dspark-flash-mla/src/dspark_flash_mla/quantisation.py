"""Rows to bytes and back, in plain torch: the truth for the kernel that writes."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark_flash_mla.layout import GROUP_CHANNELS, GROUPS, LARGEST, PLAIN_CHANNELS, SCALE_NBYTES


def quantise(kv: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes of rows.

    The scale of 64 channels is the smallest power of two with which the largest of them fits; it is kept as its
    exponent plus 127.

    Args:
        kv: ``[n, 512]``, the rotated channels last.

    Returns:
        data ``[n, 576]`` and scales ``[n, 8]``, uint8.
    """
    values = kv.float()
    groups = values[:, :PLAIN_CHANNELS].unflatten(1, (GROUPS, GROUP_CHANNELS))
    mantissa, exponent = torch.frexp(groups.abs().amax(2) / LARGEST)
    exponent = torch.where(mantissa > 0.5, exponent, exponent - 1)  # of the power of two at or above
    exponent = torch.where(mantissa > 0, exponent, -127)
    small = torch.ldexp(groups, -exponent.unsqueeze(2)).clamp(-LARGEST, LARGEST)
    plain = small.to(torch.float8_e4m3fn).view(torch.uint8).flatten(1)
    rotated = values[:, PLAIN_CHANNELS:].to(torch.bfloat16).contiguous().view(torch.uint8)
    scales = torch.zeros(len(kv), SCALE_NBYTES, dtype=torch.uint8, device=kv.device)
    scales[:, :GROUPS] = (exponent + 127).to(torch.uint8)
    return torch.cat([plain, rotated], dim=1), scales


def restore(data: Tensor, scales: Tensor) -> Tensor:
    """``[n, 512]`` fp32 of ``data [n, 576]`` and ``scales [n, 8]``."""
    plain = data[:, :PLAIN_CHANNELS].contiguous().view(torch.float8_e4m3fn).float()
    exponent = scales[:, :GROUPS].float() - 127
    groups = torch.ldexp(plain.unflatten(1, (GROUPS, GROUP_CHANNELS)), exponent.unsqueeze(2))
    rotated = data[:, PLAIN_CHANNELS:].contiguous().view(torch.bfloat16).float()
    return torch.cat([groups.flatten(1), rotated], dim=1)
