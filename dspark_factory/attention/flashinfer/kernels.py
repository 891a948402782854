"""The kernels that the backend chooses from: one interface, over lists of one length and batches of one size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from dspark_factory.attention.flashinfer.modules import sparse_attention_module

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_factory.api import KeyLists

CLUSTER_SIZES = (1, 2, 4, 8)
"""Blocks that may share a row's list."""


class Kernel(Protocol):
    """Attends for one shape."""

    @property
    def name(self) -> str:
        """Name in records."""
        ...

    def run(self, q: Tensor, pool: Tensor, keys: KeyLists, sinks: Tensor, out: Tensor) -> None:
        """Write ``out [rows, heads, head_dim]`` bf16; the arguments are as in the backend's ``forward``."""
        ...


class ClusterKernel:
    """This project's Hopper kernel; ``size`` blocks of a cluster share a row's list.

    A row's result depends on its own list and the cluster size alone, not on the batch.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._run = sparse_attention_module().sparse_attention

    @property
    def name(self) -> str:
        """``cluster`` and the size."""
        return f"cluster{self.size}"

    def run(self, q: Tensor, pool: Tensor, keys: KeyLists, sinks: Tensor, out: Tensor) -> None:
        """One launch, sink included."""
        self._run(q, pool, keys.rows, keys.lens, sinks, out, q.shape[-1] ** -0.5, self.size)


def usual_cluster_size(rows: int, heads: int, multiprocessors: int) -> int:
    """The largest cluster size with which all rows run at once; 1 beyond that."""
    groups = rows * -(-heads // 64)
    return max((size for size in CLUSTER_SIZES if size * groups <= multiprocessors), default=1)


def median_microseconds(kernel: Kernel, arguments: tuple[Tensor, Tensor, KeyLists, Tensor, Tensor]) -> float:
    """Device time of one run, the median of several."""
    kernel.run(*arguments)
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(4):
            kernel.run(*arguments)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 250.0)
    return sorted(times)[len(times) // 2]
