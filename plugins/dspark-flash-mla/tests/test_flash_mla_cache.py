"""The cache: bytes, round trips, and what is planned with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from dspark_flash_mla import backend, kv
from dspark_flash_mla.cache import FlashMlaLayer
from dspark_flash_mla.layout import BLOCK_NBYTES, BLOCK_ROWS, DATA_NBYTES, ROW_NBYTES
from dspark_flash_mla.quantisation import quantise, restore

from dspark_factory import load_config, plan
from dspark_factory.errors import ConfigError
from dspark_factory.planning.dims import LayerType
from dspark_factory.testing.registration import registered

FLASH = ["model=v4_flash", "task=plan", "device=cuda", "device.dtype=bfloat16", "pipeline=server"]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """Both are known, as if they were installed."""
    with registered(kv, backend):
        yield


def rows_of(scale: float, count: int = 200) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 512, generator=generator) * scale


@pytest.mark.parametrize("scale", [1e-6, 0.03, 1.0, 3e4])
def test_a_row_comes_back_within_the_steps_of_its_formats(scale: float) -> None:
    values = rows_of(scale)
    back = restore(*quantise(values))
    groups, got = values[:, :448].unflatten(1, (7, 64)), back[:, :448].unflatten(1, (7, 64))
    # Three mantissa bits: half a step is a sixteenth; below the smallest normal number steps stay equal.
    step = groups.abs() / 16 + groups.abs().amax(2, keepdim=True) * 2.0**-17
    assert bool(((groups - got).abs() <= step).all())
    assert torch.equal(back[:, 448:], values[:, 448:].bfloat16().float())


def test_scales_are_the_smallest_powers_of_two_that_fit() -> None:
    values = torch.zeros(1, 512)
    values[0, 0], values[0, 64], values[0, 128], values[0, 192] = 448.0, 448.1, -224.0, 1.0
    scales = quantise(values)[1][0].tolist()
    assert scales == [127, 128, 126, 119, 0, 0, 0, 0]


def test_zeros_stay_zeros() -> None:
    assert not restore(*quantise(torch.zeros(3, 512))).any()


def test_rows_are_written_read_and_moved_at_their_places() -> None:
    layer = FlashMlaLayer(torch.zeros(2, 3, BLOCK_NBYTES, dtype=torch.uint8)[1])
    values, rows = rows_of(1.0, 4), torch.tensor([0, 63, 64, 191])
    layer.write(rows, values)
    expected = restore(*quantise(values))
    assert torch.equal(layer.read(rows), expected)
    layer.move(rows[:2], torch.tensor([100, 190]))
    assert torch.equal(layer.read(torch.tensor([100, 190])), expected[:2])
    written = layer.data.any(2).nonzero().tolist()
    assert written == [[0, 0], [0, 63], [1, 0], [1, 36], [2, 62], [2, 63]]


def test_the_kernel_is_given_584_bytes_a_row_over_blocks_of_its_stride() -> None:
    layer = FlashMlaLayer(torch.zeros(3, BLOCK_NBYTES, dtype=torch.uint8))
    assert layer.cache.shape == (3, BLOCK_ROWS, 1, ROW_NBYTES)
    assert layer.cache.stride() == (BLOCK_NBYTES, ROW_NBYTES, ROW_NBYTES, 1)
    assert BLOCK_NBYTES % DATA_NBYTES == 0


def test_the_backend_brings_its_cache_in_place_of_the_pools() -> None:
    own, plain = plan(load_config([*FLASH, "backend=flash_mla"])), plan(load_config(FLASH))
    assert own.kv_store == "flash_mla_kv"
    assert own.gates["kv_pools"].reason == "backend=flash_mla keeps its KV in flash_mla_kv"
    rows = own.dims.pool_rows(LayerType.CSA)
    blocks = next(buffer.sizes[1] for buffer in own.buffers if buffer.name == "flash_mla_csa")
    assert blocks == -(-rows // BLOCK_ROWS)
    share = own.nbytes_by_provider["flash_mla_kv"] / plain.nbytes_by_provider["kv_pools"]
    assert share == pytest.approx(585 / 1024, abs=1e-3)
    assert own.kv.nbytes_per_token < plain.kv.nbytes_per_token


def test_the_cache_alone_stays_off() -> None:
    config = load_config(FLASH)
    config.buffers["flash_mla_kv"] = kv.spec()
    assert "flash_mla_kv" not in plan(config).nbytes_by_provider


def test_other_shapes_are_refused_with_every_reason() -> None:
    with pytest.raises(ConfigError) as refused:
        plan(load_config(["task=plan", "backend=flash_mla"]))
    assert [reason.partition(",")[0] for reason in refused.value.reasons] == [
        "backend=flash_mla: its kernel runs on CUDA only; set device=cuda",
        "backend=flash_mla: head_dim is 128 with 32 channels rotated",
        "backend=flash_mla: 8 heads",
    ]
