"""Quantising and writing rows in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dspark_flash_mla import layout


@triton.jit
def _write_kernel(
    data, rows, kv, kv_stride,
    BLOCK_ROWS: tl.constexpr, BLOCK_NBYTES: tl.constexpr, DATA_NBYTES: tl.constexpr,
    SCALE_NBYTES: tl.constexpr, PLAIN: tl.constexpr, GROUP: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    row = tl.load(rows + n)
    block = data + (row // BLOCK_ROWS) * BLOCK_NBYTES
    place = block + (row % BLOCK_ROWS) * DATA_NBYTES + group * GROUP
    channel = tl.arange(0, GROUP)
    value = tl.load(kv + n * kv_stride + group * GROUP + channel).to(tl.float32)
    if group * GROUP < PLAIN:
        # The power of two at or above largest / LARGEST, read from the float's own exponent.
        bits = (tl.max(tl.abs(value), axis=0) / LARGEST).to(tl.int32, bitcast=True)
        exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32)
        # 2 ** (127 - exponent) as bits; a group of zeros has exponent 0 and stays zero.
        inverse = (tl.maximum(254 - exponent, 1) << 23).to(tl.float32, bitcast=True)
        small = tl.minimum(tl.maximum(value * inverse, -LARGEST), LARGEST).to(tl.float8e4nv)
        tl.store(place + channel, small.to(tl.uint8, bitcast=True))
        scale = block + BLOCK_ROWS * DATA_NBYTES + (row % BLOCK_ROWS) * SCALE_NBYTES + group
        tl.store(scale, exponent.to(tl.uint8))
    else:
        wide = place.to(tl.pointer_type(tl.bfloat16))
        tl.store(wide + channel, value.to(tl.bfloat16))


def quantise_and_write(data: Tensor, rows: Tensor, kv: Tensor) -> None:
    """Store ``kv [n, 512]`` at ``rows [n]`` int64 of a layer whose first data byte is that of ``data``."""
    _write_kernel[kv.shape[0], layout.GROUPS + 1](
        data, rows, kv, kv.stride(0),
        BLOCK_ROWS=layout.BLOCK_ROWS, BLOCK_NBYTES=layout.BLOCK_NBYTES, DATA_NBYTES=layout.DATA_NBYTES,
        SCALE_NBYTES=layout.SCALE_NBYTES, PLAIN=layout.PLAIN_CHANNELS, GROUP=layout.GROUP_CHANNELS,
        LARGEST=layout.LARGEST, num_warps=2,
    )  # fmt: skip
