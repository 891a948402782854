"""Rotation in place, and writing rotated KV rows where they are kept; see :mod:`~dspark_factory.attention.rope`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from dspark_factory.attention.fused.launch import launch

BLOCK_HEADS = 32


@triton.jit
def _rotate_heads(
    x, positions, frequencies, row, first_head, heads, row_stride, sign,
    HEAD_DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = first_head + tl.arange(0, BLOCK)[:, None, None]
    pair = tl.arange(0, PAIRS)
    side = tl.arange(0, 2)[None, None, :]
    where = head * HEAD_DIM + HEAD_DIM - 2 * PAIRS + 2 * pair[None, :, None] + side
    places = x + row * row_stride + where
    here = (head < heads) & (side < 2)
    real, imaginary = tl.split(tl.load(places, mask=here, other=0.0).to(tl.float32))
    angle = tl.load(positions + row).to(tl.float32) * tl.load(frequencies + pair)
    cosine, sine = tl.cos(angle)[None, :], sign * tl.sin(angle)[None, :]
    turned = tl.join(real * cosine - imaginary * sine, real * sine + imaginary * cosine)
    tl.store(places, turned.to(x.dtype.element_ty), mask=here)


@triton.jit
def _rotate_kernel(
    x, positions, frequencies, heads, row_stride, sign,
    HEAD_DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    _rotate_heads(x, positions, frequencies, row, first, heads, row_stride, sign, HEAD_DIM, PAIRS, BLOCK)


@triton.jit
def _rotate_and_store_kernel(
    q, kv, index_q, positions, frequencies, pool, pool_rows, heads, index_heads, q_stride, kv_stride, index_stride,
    HEAD_DIM: tl.constexpr, INDEX_DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    q_blocks = tl.cdiv(heads, BLOCK)
    if block < q_blocks:
        first = block * BLOCK
        _rotate_heads(q, positions, frequencies, row, first, heads, q_stride, 1.0, HEAD_DIM, PAIRS, BLOCK)
    elif block > q_blocks:
        first = (block - q_blocks - 1) * BLOCK
        _rotate_heads(
            index_q,
            positions,
            frequencies,
            row,
            first,
            index_heads,
            index_stride,
            1.0,
            INDEX_DIM,
            PAIRS,
            BLOCK,
        )
    else:
        pair = tl.arange(0, HEAD_DIM // 2)
        turns = pair - (HEAD_DIM // 2 - PAIRS)
        channel = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
        real, imaginary = tl.split(tl.load(kv + row * kv_stride + channel).to(tl.float32))
        # Channels that are not rotated turn by an angle of zero.
        angle = tl.load(positions + row).to(tl.float32)
        angle *= tl.load(frequencies + turns, mask=turns >= 0, other=0.0)
        cosine, sine = tl.cos(angle), tl.sin(angle)
        turned = tl.join(real * cosine - imaginary * sine, real * sine + imaginary * cosine)
        if STORE:
            kept = turned.to(kv.dtype.element_ty).to(pool.dtype.element_ty)
            tl.store(pool + tl.load(pool_rows + row) * HEAD_DIM + channel, kept)
        else:
            tl.store(kv + row * kv_stride + channel, turned.to(kv.dtype.element_ty))


def rotate(x: Tensor, positions: Tensor, frequencies: Tensor, *, inverse: bool = False) -> None:
    """Rotate ``x [rows, heads, head_dim]`` in place for ``positions [rows]``, or undo it."""
    rows, heads, head_dim = x.shape
    launch(
        _rotate_kernel, (rows, triton.cdiv(heads, BLOCK_HEADS)),
        x, positions, frequencies, heads, x.stride(0), -1.0 if inverse else 1.0,
        HEAD_DIM=head_dim, PAIRS=len(frequencies), BLOCK=BLOCK_HEADS,
    )  # fmt: skip


def rotate_and_store(
    q: Tensor,
    kv: Tensor,
    index_q: Tensor | None,
    positions: Tensor,
    frequencies: Tensor,
    *,
    pool: Tensor | None,
    pool_rows: Tensor,
) -> None:
    """Rotate queries, and keys with them; one launch.

    Args:
        q: ``[rows, heads, head_dim]``; overwritten.
        kv: ``[rows, head_dim]``; overwritten where there is no ``pool``.
        index_q: ``[rows, index heads, index_head_dim]``; overwritten.
        positions: ``[rows]`` int64.
        frequencies: ``[pairs]`` fp32.
        pool: ``[pool rows, head_dim]`` that takes the rotated KV.
        pool_rows: ``[rows]`` int64 where each goes.
    """
    rows, heads, head_dim = q.shape
    index = q if index_q is None else index_q
    index_heads = 0 if index_q is None else index_q.shape[1]
    blocks = triton.cdiv(heads, BLOCK_HEADS) + 1 + triton.cdiv(index_heads, BLOCK_HEADS)
    launch(
        _rotate_and_store_kernel, (rows, blocks),
        q, kv, index, positions, frequencies, kv if pool is None else pool, pool_rows, heads, index_heads,
        q.stride(0), kv.stride(0), index.stride(0),
        HEAD_DIM=head_dim, INDEX_DIM=index.shape[2], PAIRS=len(frequencies), BLOCK=BLOCK_HEADS,
        STORE=pool is not None,
    )  # fmt: skip
