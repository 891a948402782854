"""Attention backends with one deliberate fault each, and a clean one with a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dspark_factory.api import (
    BackendPlugin,
    BackendSpec,
    BufferRequest,
    Buffers,
    DType,
    KeyLists,
    LayerAttention,
    extents,
)
from dspark_factory.planning.dims import Dims

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class PlantedBackendSpec(BackendSpec):
    """No option of its own."""

    kind: str = "planted_backend"


class CleanBackend:
    """One head at a time, through a workspace of scores."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        return ()

    def requests(self, spec: PlantedBackendSpec, dims: Dims) -> Sequence[BufferRequest]:
        return [BufferRequest(name="planted_sums", shape=extents(rows=dims.max_rows), dtype=DType.FLOAT32)]

    def bind(self, spec: PlantedBackendSpec, buffers: Buffers, dims: Dims) -> None:
        self.sums = buffers["planted_sums"]

    def forward(self, q: Tensor, layer: LayerAttention, lists: KeyLists) -> Tensor:
        import torch

        indices = lists.rows.long()
        keys = self.keys(layer, indices)
        scores = torch.einsum("rhd,rkd->rhk", q.float(), keys) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(self.skipped(indices).unsqueeze(1), float("-inf"))
        sinks = layer.sinks.view(1, -1).expand(q.shape[0], -1)
        top = torch.maximum(scores.amax(-1), sinks)
        weights = (scores - top.unsqueeze(-1)).exp()
        total = weights.sum(-1) + self.sink_weight(sinks, top)
        self.sums[: q.shape[0]].copy_(total.sum(-1))
        out = torch.einsum("rhk,rkd->rhd", weights, keys) / total.unsqueeze(-1)
        return self.finish(out, q)

    def keys(self, layer: LayerAttention, indices: Tensor) -> Tensor:
        return layer.pool[indices.clamp(min=0)].float()

    def skipped(self, indices: Tensor) -> Tensor:
        return indices < 0

    def sink_weight(self, sinks: Tensor, top: Tensor) -> Tensor:
        return (sinks - top).exp()

    def finish(self, out: Tensor, q: Tensor) -> Tensor:
        return out.to(q.dtype)


class DropsTheSink(CleanBackend):
    def sink_weight(self, sinks: Tensor, top: Tensor) -> Tensor:
        return 0 * sinks + 1e-30


class ReadsSkippedLanes(CleanBackend):
    def keys(self, layer: LayerAttention, indices: Tensor) -> Tensor:
        return layer.pool[indices].float()

    def skipped(self, indices: Tensor) -> Tensor:
        return indices < -1


class WrongDtype(CleanBackend):
    def finish(self, out: Tensor, q: Tensor) -> Tensor:
        return out.double()


class RoundsOnTheWay(CleanBackend):
    """Values in the pool's type times weights in the queries' type."""

    def finish(self, out: Tensor, q: Tensor) -> Tensor:
        return (out.to(q.dtype) * 1.02).to(q.dtype) if q.element_size() == 2 else out


class AllocatesAWorkspace(CleanBackend):
    def requests(self, spec: PlantedBackendSpec, dims: Dims) -> Sequence[BufferRequest]:
        return ()

    def bind(self, spec: PlantedBackendSpec, buffers: Buffers, dims: Dims) -> None:
        import torch

        self.sums = torch.zeros(dims.max_rows)


class OverwritesQueries(CleanBackend):
    def finish(self, out: Tensor, q: Tensor) -> Tensor:
        return q.copy_(out)


class MoodyReasons(CleanBackend):
    times_asked = 0

    def reasons(self, dims: Dims) -> Sequence[str]:
        type(self).times_asked += 1
        return () if self.times_asked % 2 else ("not now",)


class RefusesEverything(CleanBackend):
    def reasons(self, dims: Dims) -> Sequence[str]:
        return (f"head_dim={dims.head_dim} is not 7",)


def planted_backend(backend: type[CleanBackend]) -> BackendPlugin:
    return BackendPlugin(
        name="planted_backend",
        spec=PlantedBackendSpec,
        backend=f"tests.testing.faulty_backends:{backend.__name__}",
    )
