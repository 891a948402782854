"""Choosing a kernel: by timing while AUTOTUNE runs, by rule otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dspark_factory.api import Buffers, KeyLists
from dspark_factory.attention.flashinfer.kernels import (
    CLUSTER_SIZES,
    ClusterKernel,
    Kernel,
    median_microseconds,
    usual_cluster_size,
)
from dspark_factory.attention.flashinfer.mla import MlaKernel
from dspark_factory.attention.flashinfer.shapes import Shape, captured_shapes, list_lengths
from dspark_factory.attention.spec import AttentionKernel, FlashInferBackendSpec
from dspark_factory.errors import PluginError
from dspark_factory.planning.dims import Dims

HOPPER_ONLY = (AttentionKernel.cluster, AttentionKernel.fa3)


class KernelChoice:
    """The kernel of each shape.

    Args:
        spec: which kernels may be chosen.
        buffers: with workspace and plans of the MLA kernels, where there are any.
        dims: geometry.

    Attributes:
        timing: whether a new shape of a captured step is timed.
    """

    def __init__(self, spec: FlashInferBackendSpec, buffers: Buffers, dims: Dims) -> None:
        self.timing = False
        self._heads, self._head_dim = dims.num_heads, dims.head_dim
        hopper = torch.cuda.get_device_capability() == (9, 0)
        listed = [AttentionKernel.cluster] if spec.batch_invariant else list(spec.kernels)
        kinds = [kind for kind in listed if hopper or kind not in HOPPER_ONLY]
        if not kinds:
            names = ", ".join(kind.value for kind in listed)
            raise PluginError(
                f"none of backend.kernels=[{names}] runs on {torch.cuda.get_device_name()}; set backend.kernels=[fa2]"
            )
        self._mla = [kind for kind in kinds if kind is not AttentionKernel.cluster]
        self._clusters: dict[int, ClusterKernel] = {}
        if AttentionKernel.cluster in kinds:
            sizes = (1,) if spec.batch_invariant else CLUSTER_SIZES
            self._clusters = {size: ClusterKernel(size) for size in sizes}
        self._multiprocessors = torch.cuda.get_device_properties().multi_processor_count
        self._workspace = buffers["mla_workspace"] if self._mla else None
        self._plans = buffers["mla_plans"] if self._mla else None
        self._captured = {shape: place for place, shape in enumerate(captured_shapes(dims))}
        spare = len(self._captured)
        self._spare = {keys: spare + place for place, keys in enumerate(list_lengths(dims))}
        self._chosen: dict[Shape, Kernel] = {}
        self._uncaptured: dict[int, tuple[Shape, Kernel]] = {}
        self._microseconds: dict[Shape, dict[str, float]] = {}

    def kernel(self, q: Tensor, pool: Tensor, keys: KeyLists, sinks: Tensor) -> Kernel:
        """The kernel for these queries ``[rows, heads, head_dim]`` and lists."""
        shape = Shape(q.shape[0], keys.rows.shape[1])
        if shape in self._chosen:
            return self._chosen[shape]
        if self.timing and shape in self._captured:
            self._chosen[shape] = self._fastest(shape, q, pool, sinks)
            return self._chosen[shape]
        return self._by_rule(shape)

    def record(self) -> dict[str, Any]:
        """Chosen kernel and all times of every shape timed."""
        return {
            f"{shape.rows} rows x {shape.keys} keys": {
                "kernel": self._chosen[shape].name,
                "microseconds": {name: round(value, 2) for name, value in times.items()},
            }
            for shape, times in self._microseconds.items()
        }

    def _fastest(self, shape: Shape, q: Tensor, pool: Tensor, sinks: Tensor) -> Kernel:
        """Time every kernel on full lists of random pool rows, which is what a long context gives."""
        rows = torch.randint(len(pool), shape, dtype=torch.int32, device=pool.device)
        lens = torch.full((shape.rows,), shape.keys, dtype=torch.int32, device=pool.device)
        arguments = (q, pool, KeyLists(rows=rows, lens=lens), sinks, torch.empty_like(q))
        makers: list[Callable[[], Kernel]] = [
            lambda kernel=kernel: kernel for kernel in self._clusters.values()
        ]
        makers += [partial(self._mla_kernel, kind, shape, self._captured[shape]) for kind in self._mla]
        times = []
        for make in makers:
            kernel = make()
            times.append((kernel.name, median_microseconds(kernel, arguments)))
        self._microseconds[shape] = dict(times)
        best = min(range(len(times)), key=lambda place: times[place][1])
        return makers[best]()  # made again: the kernels of a shape share the memory of its plan

    def _by_rule(self, shape: Shape) -> Kernel:
        """Outside AUTOTUNE: the cluster kernel with its usual size, else an MLA kernel planned for this shape."""
        if self._clusters:
            size = usual_cluster_size(shape.rows, self._heads, self._multiprocessors)
            return self._clusters.get(size) or self._clusters[1]
        known = self._uncaptured.get(shape.keys)
        if known is None or known[0] != shape:
            known = (shape, self._mla_kernel(self._mla[0], shape, self._spare[shape.keys]))
            self._uncaptured[shape.keys] = known
        return known[1]

    def _mla_kernel(self, kind: AttentionKernel, shape: Shape, place: int) -> Kernel:
        assert self._plans is not None
        assert self._workspace is not None
        return MlaKernel(
            kind.value,
            shape,
            self._heads,
            self._head_dim,
            workspace=self._workspace,
            plan_memory=self._plans[place],
        )
