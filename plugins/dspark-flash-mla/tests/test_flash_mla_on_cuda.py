"""The kernel that writes and the kernel that attends, on the card."""

from __future__ import annotations

import pytest
import torch
from dspark_flash_mla import backend, kv
from dspark_flash_mla.cache import FlashMlaLayer
from dspark_flash_mla.layout import BLOCK_NBYTES
from dspark_flash_mla.quantisation import quantise

from dspark_factory.testing import BackendConformance
from dspark_factory.testing.registration import registered

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_written_as_the_same_bytes_as_in_torch(dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(2)
    values = torch.randn(1000, 512, generator=generator, device="cuda").to(dtype)
    values *= torch.logspace(-6, 4, 1000, device="cuda", dtype=dtype).unsqueeze(1)
    values[5] = 0
    layer = FlashMlaLayer(torch.zeros(20, BLOCK_NBYTES, dtype=torch.uint8, device="cuda"))
    rows = torch.randperm(20 * 64, device="cuda")[:1000]
    layer.write(rows, values)
    data, scales = quantise(values)
    assert torch.equal(layer.data[rows // 64, rows % 64], data)
    assert torch.equal(layer.scales[rows // 64, rows % 64], scales)


class TestAgreement(BackendConformance):
    """Attention agrees with the reference on what the cache holds; tokens of a whole model are another matter."""

    plugin = backend
    overrides = (
        "task=build",
        "model=v4_flash",
        "device=cuda",
        "device.dtype=bfloat16",
        "pipeline.context_length=4096",
        "pipeline.max_requests=4",
        "pipeline.capture_requests=[4]",
    )

    def test_its_tokens_equal_the_reference(self) -> None:
        """Quantised KV gives other logits, so this is not asked."""


@pytest.fixture(autouse=True, scope="module")
def known():
    """The cache and the backend are known, as if they were installed."""
    with registered(kv, backend):
        yield
