"""Rotation in place, and writing rotated KV rows where they are kept; see :mod:`~dspark_factory.attention.rope`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dspark_factory.attention.fused.launch import launch

BLOCK_HEADS = 32


@triton.jit
def _turned(x, turns, sign, PAIRS: tl.constexpr):
    """A tile ``[heads, 2 * PAIRS]`` rotated by one row of cosines and sines."""
    real, imaginary = tl.split(tl.reshape(x.to(tl.float32), [x.shape[0], PAIRS, 2]))
    both = tl.load(turns + tl.arange(0, 2 * PAIRS)[None, :])
    cosine, sine = tl.split(tl.reshape(both, [1, PAIRS, 2]))
    sine *= sign
    turned = tl.join(real * cosine - imaginary * sine, real * sine + imaginary * cosine)
    return tl.reshape(turned, [x.shape[0], 2 * PAIRS])


@triton.jit
def _rotate_heads(
    x, turns, row, first_head, heads, row_stride, sign,
    HEAD_DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = first_head + tl.arange(0, BLOCK)[:, None]
    channel = HEAD_DIM - 2 * PAIRS + tl.arange(0, 2 * PAIRS)[None, :]
    places = x + row * row_stride + head * HEAD_DIM + channel
    here = (head < heads) & (channel < HEAD_DIM)
    turned = _turned(tl.load(places, mask=here, other=0.0), turns + row * (2 * PAIRS), sign, PAIRS)
    tl.store(places, turned.to(x.dtype.element_ty), mask=here)


@triton.jit
def _rotate_kernel(
    x, turns, heads, row_stride, sign,
    HEAD_DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    _rotate_heads(x, turns, row, first, heads, row_stride, sign, HEAD_DIM, PAIRS, BLOCK)


@triton.jit
def _rotate_and_store_kernel(
    q, kv, index_q, turns, pool, pool_rows, heads, index_heads, q_stride, kv_stride, index_stride,
    HEAD_DIM: tl.constexpr, INDEX_DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    q_blocks = tl.cdiv(heads, BLOCK)
    if block < q_blocks:
        first = block * BLOCK
        _rotate_heads(q, turns, row, first, heads, q_stride, 1.0, HEAD_DIM, PAIRS, BLOCK)
    elif block > q_blocks:
        first = (block - q_blocks - 1) * BLOCK
        _rotate_heads(index_q, turns, row, first, index_heads, index_stride, 1.0, INDEX_DIM, PAIRS, BLOCK)
    else:
        source, target = kv + row * kv_stride, kv + row * kv_stride
        if STORE:
            target = pool + tl.load(pool_rows + row) * HEAD_DIM
            channel = tl.arange(0, HEAD_DIM)
            still = channel < HEAD_DIM - 2 * PAIRS
            kept = tl.load(source + channel, mask=still, other=0.0).to(kv.dtype.element_ty)
            tl.store(target + channel, kept.to(pool.dtype.element_ty), mask=still)
        channel = HEAD_DIM - 2 * PAIRS + tl.arange(0, 2 * PAIRS)[None, :]
        turned = _turned(tl.load(source + channel), turns + row * (2 * PAIRS), 1.0, PAIRS)
        tl.store(target + channel, turned.to(kv.dtype.element_ty).to(target.dtype.element_ty))


def rotate(x: Tensor, turn: Tensor, *, inverse: bool = False) -> None:
    """Rotate ``x [rows, heads, head_dim]`` in place by complex ``turn [rows, pairs]``, or undo it."""
    rows, heads, head_dim = x.shape
    launch(
        _rotate_kernel, (rows, triton.cdiv(heads, BLOCK_HEADS)),
        x, torch.view_as_real(turn), heads, x.stride(0), -1.0 if inverse else 1.0,
        HEAD_DIM=head_dim, PAIRS=turn.shape[1], BLOCK=BLOCK_HEADS,
    )  # fmt: skip


def rotate_and_store(
    q: Tensor,
    kv: Tensor,
    index_q: Tensor | None,
    turn: Tensor,
    *,
    pool: Tensor | None,
    pool_rows: Tensor,
) -> None:
    """Rotate queries, and keys with them; one launch.

    Args:
        q: ``[rows, heads, head_dim]``; overwritten.
        kv: ``[rows, head_dim]``; overwritten where there is no ``pool``.
        index_q: ``[rows, index heads, index_head_dim]``; overwritten.
        turn: ``[rows, pairs]`` complex64.
        pool: ``[pool rows, head_dim]`` that takes the rotated KV.
        pool_rows: ``[rows]`` int64 where each goes.
    """
    rows, heads, head_dim = q.shape
    index = q if index_q is None else index_q
    index_heads = 0 if index_q is None else index_q.shape[1]
    blocks = triton.cdiv(heads, BLOCK_HEADS) + 1 + triton.cdiv(index_heads, BLOCK_HEADS)
    launch(
        _rotate_and_store_kernel, (rows, blocks),
        q, kv, index, torch.view_as_real(turn), kv if pool is None else pool, pool_rows, heads, index_heads,
        q.stride(0), kv.stride(0), index.stride(0),
        HEAD_DIM=head_dim, INDEX_DIM=index.shape[2], PAIRS=turn.shape[1], BLOCK=BLOCK_HEADS,
        STORE=pool is not None,
    )  # fmt: skip
