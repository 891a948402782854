"""What the device can do at most, measured in the same run: copying memory, and multiplying matrices."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import torch

from dspark_factory.benchmarks.timing import captured, microseconds

CUDA_COPY_NBYTES, CPU_COPY_NBYTES = 2 << 30, 64 << 20
CUDA_MATRIX, CPU_MATRIX = 8192, 512


class Ceilings(NamedTuple):
    """Bytes per second that a copying kernel reads and writes; operations per second of a bfloat16 product."""

    copy_nbytes_per_second: float
    matrix_flops: float


def measure_ceilings(device: torch.device) -> Ceilings:
    """Medians of a large copy, counting bytes read and written, and of a large square product."""
    cuda = device.type == "cuda"
    nbytes, size = (CUDA_COPY_NBYTES, CUDA_MATRIX) if cuda else (CPU_COPY_NBYTES, CPU_MATRIX)
    source = torch.zeros(nbytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    # The device's copy engine is not the fastest way to move memory; a kernel that reads and writes is.
    wide, out_wide = source.view(torch.int32), target.view(torch.int32)
    copying = captured(lambda: torch.bitwise_not(wide, out=out_wide), device)
    copy = median(microseconds(copying, device) for _ in range(10))
    left, right = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    multiplying = captured(lambda: torch.mm(left, right, out=out), device)
    product = median(microseconds(multiplying, device) for _ in range(10))
    return Ceilings(2 * nbytes / copy * 1e6, 2 * size**3 / product * 1e6)
