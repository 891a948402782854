"""Compiled kernels, built on first use by FlashInfer's just-in-time compiler, which also keeps them for later."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "csrc"


@cache
def sparse_attention_module() -> Any:
    """This project's kernel for Hopper; its ``sparse_attention`` is described in ``csrc/binding.cu``."""
    from flashinfer.jit import env  # pyright: ignore[reportMissingImports]
    from flashinfer.jit.core import gen_jit_spec  # pyright: ignore[reportMissingImports]

    spec = gen_jit_spec(
        "dspark_sparse_attention",
        [SOURCES / "binding.cu"],
        extra_cuda_cflags=["-gencode=arch=compute_90a,code=sm_90a"],
        extra_include_paths=[SOURCES, env.FLASHINFER_CSRC_DIR],
    )
    return spec.build_and_load()


@cache
def mla_module(kernel: str, head_dim: int) -> Any:
    """FlashInfer's paged MLA kernel ``fa3`` or ``fa2`` for bfloat16 with keys as values and no rotary part of its own.

    Its ``plan_with_staged_workspace_bytes`` and ``run`` are not public, but the public wrapper's plan waits for the
    device.
    """
    import torch
    from flashinfer.mla._batch_mla._backends import _fa_common  # pyright: ignore[reportMissingImports]

    bfloat16 = torch.bfloat16
    return _fa_common.get_batch_mla_module(
        kernel, bfloat16, bfloat16, bfloat16, torch.int32, head_dim, 0, False
    )
