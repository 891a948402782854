"""A backend beside the reference on random pools: every layer type, sinks, empty rows and skipped entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dspark_factory.attention.softmax import attend
from dspark_factory.memory.arena import Arena, torch_dtype
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.testing.case import BackendCase
from dspark_factory.testing.results import CheckFailed

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-3, torch.float16: 1e-3}
"""Absolute and relative, against the reference in fp32 on the same values."""

_POISON = 1.0e3
"""Value of the pool rows that a skipped entry would hit when it is taken for a row number: the first and last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticLayer:
    """What a backend is given instead of a model's layer; see :class:`~dspark_factory.api.LayerAttention`."""

    kind: str
    pool: Tensor
    sinks: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One call of a backend, and where it comes from."""

    name: str
    q: Tensor
    layer: SyntheticLayer
    indices: Tensor

    def expected(self) -> Tensor:
        """The reference in fp32 on the same values."""
        return attend(self.q.float(), self.layer.pool.float(), self.indices, self.layer.sinks)


def problem(
    dims: Dims, layer_type: LayerType, *, dtype: torch.dtype, device: torch.device, rows: int, ragged: bool
) -> Problem:
    """Random queries and pool, and index lists as the layer type has them; every entry of them is live.

    Args:
        dims: geometry.
        layer_type: decides the number of keys per row.
        dtype: of queries and pool.
        device: where they lie.
        rows: of the step.
        ragged: whether rows have different numbers of keys, as requests of different lengths do.
    """
    generator = torch.Generator().manual_seed(rows)
    entries = {
        LayerType.SLIDING: 0,
        LayerType.CSA: dims.selected_entries,
        LayerType.HCA: dims.max_entries(LayerType.HCA),
    }
    keys = dims.sliding_window + entries[layer_type]
    pool = torch.randn(dims.pool_rows(layer_type), dims.head_dim, generator=generator)
    pool[[0, -1]] = _POISON
    indices = torch.randint(1, pool.shape[0] - 1, (rows, keys), generator=generator)
    if ragged:
        lens = torch.randint(1, keys + 1, (rows, 1), generator=generator)
        indices = torch.where(torch.arange(keys) < lens, indices, -1)
    layer = SyntheticLayer(
        kind=layer_type.value,
        pool=pool.to(device, dtype),
        sinks=torch.randn(dims.num_heads, generator=generator).to(device),
    )
    q = torch.randn(rows, dims.num_heads, dims.head_dim, generator=generator).to(device, dtype)
    name = f"{layer_type.value}, {rows} rows, {'ragged' if ragged else 'uniform'}, {dtype}"
    return Problem(name=name, q=q, layer=layer, indices=indices.to(device))


class Bench:
    """A backend bound to its workspaces, without a model.

    Attributes:
        dims: geometry it was planned for.
        device: where it runs.
    """

    def __init__(self, case: BackendCase, *more: str) -> None:
        self._case = case
        config = case.config(*more)
        planned = case.plan(config)
        self._backend = case.backend()
        self.dims, self.device = planned.dims, torch.device(config.device.kind.value)
        self.dtype = torch_dtype(self.dims.dtype.value)
        self._arena = Arena(planned, self.device)
        self._backend.bind(self._arena.buffers, self.dims)

    def problems(self) -> Iterator[Problem]:
        """One request, the largest decode or verify step and one in between, of every layer type."""
        for layer_type in LayerType:
            for rows in sorted({1, self.dims.max_width + 1, self.dims.max_batch_rows}):
                for ragged in (False, True):
                    yield problem(
                        self.dims, layer_type, dtype=self.dtype, device=self.device, rows=rows, ragged=ragged
                    )

    def compare(self, item: Problem, what: str) -> Tensor:
        """Run the backend; returns its output.

        Raises:
            CheckFailed: it differs from the reference, or it changes its inputs.
        """
        kept = (item.q.clone(), item.layer.pool.clone(), item.indices.clone())
        expected = item.expected()
        with torch.no_grad():
            got = self._backend.forward(item.q, item.layer, item.indices)
        given = (item.q, item.layer.pool, item.indices)
        if not all(torch.equal(before, now) for before, now in zip(kept, given, strict=True)):
            raise CheckFailed(
                f"backend {self._case.name!r} changes q, the pool or the indices ({item.name}); they belong to "
                "the step, write to a workspace"
            )
        if got.shape != expected.shape or got.dtype != item.q.dtype:
            raise CheckFailed(
                f"backend {self._case.name!r} returns {tuple(got.shape)} {got.dtype} for queries "
                f"{tuple(item.q.shape)} {item.q.dtype} ({item.name}); return the shape and dtype of q"
            )
        tolerance = TOLERANCE[item.q.dtype]
        if not torch.allclose(got.float(), expected, rtol=tolerance, atol=tolerance):
            error = (got.float() - expected).abs().nan_to_num(float("inf")).max()
            raise CheckFailed(
                f"backend {self._case.name!r} differs from the reference by {error:.3g} ({item.name}; tolerance "
                f"{tolerance}): {what}"
            )
        return got


def with_sinks(item: Problem, value: float) -> Problem:
    """The same problem with every sink logit at ``value``."""
    sinks = torch.full_like(item.layer.sinks, value)
    return replace(item, layer=replace(item.layer, sinks=sinks))


def with_skipped(item: Problem) -> Problem:
    """The same problem with every third entry of each row skipped, in the middle of its list too."""
    place = torch.arange(item.indices.shape[1], device=item.indices.device)
    row = torch.arange(item.indices.shape[0], device=item.indices.device).unsqueeze(1)
    return replace(item, indices=torch.where((place + row) % 3 == 0, -1, item.indices))


def with_empty_rows(item: Problem) -> Problem:
    """The same problem where every other row, the first included, has no key."""
    indices = item.indices.clone()
    indices[::2] = -1
    return replace(item, indices=indices)
