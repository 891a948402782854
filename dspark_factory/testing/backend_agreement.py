"""A backend beside the reference on random KV: every layer type, sinks, short lists and empty rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dspark_factory.api import KeyLists, LayerKv
from dspark_factory.attention.softmax import attend
from dspark_factory.memory.arena import Arena, torch_dtype
from dspark_factory.planning.dims import LayerType
from dspark_factory.registry import buffer_plugins, load_object
from dspark_factory.testing.case import BackendCase
from dspark_factory.testing.results import CheckFailed

TOLERANCE = {torch.float32: (1e-4, 1e-4), torch.float16: (1e-3, 2**-9), torch.bfloat16: (3e-3, 2**-7)}
"""Absolute, and relative to the reference in fp32 on the same values.

Two units in the last place for 16-bit types, because kernels round weights and output alike.
"""

_POISON = 1.0e3
"""Value of the pool rows that a backend hits when it takes −1 for a row number: the first and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticLayer:
    """What a backend is given instead of a model's layer; see :class:`~dspark_factory.api.LayerAttention`."""

    kind: str
    kv: LayerKv
    sinks: Tensor

    @property
    def pool(self) -> Tensor:
        """Plain rows, of a store that keeps them so."""
        store: Any = self.kv
        return store.pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One call of a backend, and where it comes from; ``stored`` is all of the layer's KV in fp32."""

    name: str
    q: Tensor
    layer: SyntheticLayer
    stored: Tensor
    keys: KeyLists

    def expected(self) -> Tensor:
        """The reference in fp32 on the same values."""
        return attend(self.q.float(), self.stored, self.keys.rows.long(), self.layer.sinks)


class Bench:
    """A backend bound to its workspaces and its KV store, without a model.

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
        kinds = (self.dtype, torch_dtype(self.dims.kv_dtype.value))
        self._tolerance = max(TOLERANCE[kind] for kind in kinds)
        self._query_values = kinds[1]
        self._arena = Arena(planned, self.device)
        self._backend.bind(config.backend, self._arena.buffers, self.dims)
        provider = load_object(buffer_plugins[planned.kv_store].provider)()
        self._store = provider.bind(self._arena.buffers, self.dims)

    def problems(self) -> Iterator[Problem]:
        """One request, the largest decode or verify step and one in between, of every layer type."""
        for layer_type in LayerType:
            for rows in sorted({1, self.dims.max_width + 1, self.dims.max_batch_rows}):
                for ragged in (False, True):
                    yield self.problem(layer_type, rows=rows, ragged=ragged)

    def problem(self, layer_type: LayerType, *, rows: int, ragged: bool) -> Problem:
        """Random queries and KV, and key lists as the layer type has them.

        Queries hold values that KV of its type can hold, because kernels multiply the two in one type.

        Args:
            layer_type: decides the number of keys per row.
            rows: of the step.
            ragged: whether rows have different numbers of keys, as requests of different lengths do.
        """
        dims, device = self.dims, self.device
        generator = torch.Generator().manual_seed(rows)
        listed = dims.list_keys(layer_type)
        pool = torch.randn(dims.pool_rows(layer_type), dims.head_dim, generator=generator)
        pool[[0, -1]] = _POISON
        everything = torch.arange(len(pool), device=device)
        kv = self._store.layer(layer_type.value, 0)
        kv.write(everything, pool.to(device, self.dtype))
        keys = torch.randint(1, len(pool) - 1, (rows, listed), generator=generator)
        lens = torch.full((rows,), listed)
        if ragged:
            lens = torch.randint(1, listed + 1, (rows,), generator=generator)
        sinks = torch.randn(dims.num_heads, generator=generator).to(device)
        q = torch.randn(rows, dims.num_heads, dims.head_dim, generator=generator).to(device)
        q = q.to(self._query_values).to(self.dtype)
        return Problem(
            name=f"{layer_type.value}, {rows} rows, {'ragged' if ragged else 'uniform'}, {self.dtype}",
            q=q,
            layer=SyntheticLayer(kind=layer_type.value, kv=kv, sinks=sinks),
            stored=kv.read(everything),
            keys=_lists(keys.to(device), lens.to(device)),
        )

    def compare(self, item: Problem, what: str) -> Tensor:
        """Run the backend; returns its output.

        Raises:
            CheckFailed: it differs from the reference, or it changes its inputs.
        """
        everything = torch.arange(len(item.stored), device=self.device)
        kept = (item.q.clone(), item.stored, item.keys.rows.clone(), item.keys.lens.clone())
        expected = item.expected()
        with torch.no_grad():
            got = self._backend.forward(item.q, item.layer, item.keys)
        given = (item.q, item.layer.kv.read(everything), item.keys.rows, item.keys.lens)
        if not all(torch.equal(before, now) for before, now in zip(kept, given, strict=True)):
            raise CheckFailed(
                f"backend {self._case.name!r} changes q, the KV or the key lists ({item.name}); they belong to "
                "the step, write to a workspace"
            )
        if got.shape != expected.shape or got.dtype != item.q.dtype:
            raise CheckFailed(
                f"backend {self._case.name!r} returns {tuple(got.shape)} {got.dtype} for queries "
                f"{tuple(item.q.shape)} {item.q.dtype} ({item.name}); return the shape and dtype of q"
            )
        absolute, relative = self._tolerance
        if not torch.allclose(got.float(), expected, rtol=relative, atol=absolute):
            error = (got.float() - expected).abs().nan_to_num(float("inf")).max()
            raise CheckFailed(
                f"backend {self._case.name!r} differs from the reference by {error:.3g} ({item.name}; tolerance "
                f"{absolute} and {relative:.3g} of the value): {what}"
            )
        return got


def _lists(rows: Tensor, lens: Tensor) -> KeyLists:
    """Lists cut to ``lens [rows]``."""
    place = torch.arange(rows.shape[1], device=rows.device)
    cut = torch.where(place < lens.unsqueeze(1), rows, -1)
    return KeyLists(rows=cut.int(), lens=lens.int())


def with_sinks(item: Problem, value: float) -> Problem:
    """The same problem with every sink logit at ``value``."""
    sinks = torch.full_like(item.layer.sinks, value)
    return replace(item, layer=replace(item.layer, sinks=sinks))


def with_short_lists(item: Problem) -> Problem:
    """The same problem with lists of every length up to their own, those of neighbouring rows far apart."""
    row = torch.arange(len(item.keys.lens), device=item.keys.lens.device)
    lens = 1 + (item.keys.lens - 1) * (row * 7 % 11) // 10
    return replace(item, keys=_lists(item.keys.rows, lens))


def with_empty_rows(item: Problem) -> Problem:
    """The same problem where every other row, the first included, has no key."""
    lens = item.keys.lens.clone()
    lens[::2] = 0
    return replace(item, keys=_lists(item.keys.rows, lens))
