"""Rotary embedding against the transformers library."""

from __future__ import annotations

import pytest
import torch
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4RotaryEmbedding,
    apply_rotary_pos_emb,
)

from dspark_factory.attention.rope import inverse_frequencies, rotate, rotations
from tests.oracle import MIXED, WIDE, random_model


@pytest.mark.parametrize(("shape", "kind"), [(MIXED, "main"), (MIXED, "compress"), (WIDE, "compress")])
def test_frequencies_equal_the_librarys_with_and_without_yarn(shape, kind):
    config = random_model(shape).config
    library = DeepseekV4RotaryEmbedding(config)
    parameters = config.rope_parameters[kind]
    scaling = {
        k: parameters[k]
        for k in ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")
        if k in parameters
    }
    ours = inverse_frequencies(shape["qk_rope_head_dim"], parameters["rope_theta"], scaling or None)
    torch.testing.assert_close(ours, getattr(library, f"{kind}_inv_freq"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_equals_the_librarys_and_its_conjugate_undoes_it(dtype):
    x = torch.randn(7, 3, 24, dtype=dtype)
    positions = torch.tensor([0, 1, 5, 127, 128, 1000, 9999])
    turn = rotations(positions, inverse_frequencies(16, 10000.0)).unsqueeze(1)
    angles = positions[:, None].float() * inverse_frequencies(16, 10000.0)
    expected = apply_rotary_pos_emb(x, angles.cos(), angles.sin())
    turned = rotate(x.clone(), turn)
    torch.testing.assert_close(turned, expected)
    tolerance = {"atol": 0.05, "rtol": 0.02} if dtype is torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(rotate(turned, turn.conj()), x, **tolerance)


def test_channels_before_the_rotated_ones_stay_untouched():
    x = torch.randn(2, 24)
    turned = rotate(x.clone(), rotations(torch.tensor([3, 4]), inverse_frequencies(16, 10000.0)))
    assert torch.equal(turned[:, :8], x[:, :8])
