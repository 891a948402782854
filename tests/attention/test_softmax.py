"""Attention over index lists: sinks, skipped entries, empty rows, strided inputs."""

from __future__ import annotations

import pytest
import torch

from dspark_factory.attention.softmax import attend


def dense(q, keys, sinks):
    """Written out in fp64, key by key."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            logits = keys[row].double() @ q[row, head].double() * q.shape[-1] ** -0.5
            weights = logits.exp() / (logits.exp().sum() + sinks[head].double().exp())
            out[row, head] = weights @ keys[row].double()
    return out


def test_sink_takes_its_share_of_the_denominator():
    """Field report 37: two zero scores, values of one and a sink of zero give two thirds, not one."""
    pool = torch.zeros(2, 4)
    pool[:, 0] = 1.0
    q = torch.zeros(1, 1, 4)
    out = attend(q, pool, torch.tensor([[0, 1]]), torch.zeros(1))
    assert out[0, 0, 0] == pytest.approx(2 / 3)


def test_a_row_without_keys_is_zero():
    """Field report 37: no valid key gives 0, not NaN."""
    out = attend(torch.randn(2, 3, 4), torch.randn(5, 4), torch.full((2, 6), -1), torch.randn(3))
    assert torch.equal(out, torch.zeros_like(out))


@pytest.mark.parametrize("rows", [63, 64, 65])
def test_lanes_behind_the_valid_ones_are_never_read(rows):
    """Field report 33: whatever the skipped lanes' memory holds, the output stays the same."""
    generator = torch.Generator().manual_seed(rows)
    pool = torch.randn(200, 8, generator=generator)
    q, sinks = torch.randn(rows, 2, 8, generator=generator), torch.randn(2, generator=generator)
    indices = torch.randint(0, 200, (rows, 128), generator=generator)
    lengths = torch.tensor([1, 64, 128]).repeat(rows // 3 + 1)[:rows]
    tail = torch.arange(128) >= lengths.unsqueeze(1)
    expected = dense(q, [pool[indices[row, : lengths[row]]] for row in range(rows)], sinks)
    for filler in (-1, -5, -(10**9)):
        out = attend(q, pool, indices.masked_fill(tail, filler), sinks)
        torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)


def test_strided_queries_give_the_contiguous_result():
    """Field report 40: a slice of a fused tensor and a transpose are read by their strides."""
    fused = torch.randn(6, 2 * 12)
    pool, sinks = torch.randn(9, 12), torch.randn(2)
    indices = torch.randint(0, 9, (6, 5))
    q = fused.view(6, 2, 12)[:, :, :]
    transposed = q.transpose(0, 1).contiguous().transpose(0, 1)
    assert not transposed.is_contiguous()
    torch.testing.assert_close(attend(transposed, pool, indices, sinks), attend(q, pool, indices, sinks))


def test_low_precision_inputs_are_accumulated_in_fp32():
    generator = torch.Generator().manual_seed(0)
    pool = torch.randn(600, 32, generator=generator).bfloat16()
    q = torch.randn(4, 2, 32, generator=generator).bfloat16()
    indices = torch.arange(600).expand(4, -1)
    out = attend(q, pool, indices, torch.zeros(2))
    expected = dense(q, [pool] * 4, torch.zeros(2))
    error = (out.double() - expected).norm() / expected.norm()
    assert out.dtype is torch.bfloat16
    assert error < 3e-3
