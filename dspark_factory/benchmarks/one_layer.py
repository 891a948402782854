"""Attention of one sparse layer, one backend beside another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from dspark_factory.api import KeyLists
from dspark_factory.attention.softmax import attend
from dspark_factory.benchmarks.ceilings import Ceilings
from dspark_factory.benchmarks.synthetic import fill_kv, sparse_lists
from dspark_factory.benchmarks.timing import Work, captured, rounds, summary, synchronize
from dspark_factory.config.schema import Config
from dspark_factory.factory import Assembly, build
from dspark_factory.memory.arena import torch_dtype
from dspark_factory.models.attention_stack import AttentionStack
from dspark_factory.planning.dims import LayerType

Advance = Callable[[int], None]


class Contender:
    """One backend over one sparse layer of its own."""

    def __init__(self, config: Config) -> None:
        self.assembly: Assembly = build(config)
        self.dims, self.device = self.assembly.dims, self.assembly.arena.device
        fill_kv(self.assembly)
        model = self.assembly.pipeline.model
        assert isinstance(model, AttentionStack)
        self.layer = model.layers[0]

    def work(self, requests: int, entries: int, calls: int) -> Work:
        """Attend ``calls`` times for a verify step of ``requests`` requests, as so many sparse layers do.

        The backend tunes for the shape first, where it tunes. Lengths are new in every step, so what a backend makes of
        them once for all layers is part of the work.
        """
        dims = self.dims
        generator = torch.Generator(self.device).manual_seed(requests)
        rows = requests * dims.max_width
        q = torch.randn(rows, dims.num_heads, dims.head_dim, generator=generator, device=self.device)
        q = q.to(torch_dtype(dims.dtype.value))
        keys = sparse_lists(dims, requests=requests, entries=entries, device=self.device)
        backend = self.assembly.backend
        with torch.inference_mode(), self.assembly.tuning():
            backend.forward(q, self.layer, keys)

        def step() -> None:
            lists = KeyLists(rows=keys.rows, lens=keys.lens.view(-1))
            for _ in range(calls):
                backend.forward(q, self.layer, lists)

        return step

    def error(self, entries: int) -> float:
        """Largest difference to fp64 on what the store holds, for one request."""
        dims = self.dims
        keys = sparse_lists(dims, requests=1, entries=entries, device=self.device)
        generator = torch.Generator(self.device).manual_seed(7)
        q = torch.randn(
            dims.max_width, dims.num_heads, dims.head_dim, generator=generator, device=self.device
        )
        q = q.to(torch_dtype(dims.dtype.value))
        with torch.no_grad():
            got = self.assembly.backend.forward(q, self.layer, keys).double()
            stored = self.layer.kv.read(keys.rows.flatten().long())
        listed = torch.arange(len(stored), device=self.device).view(keys.rows.shape)
        expected = attend(q.double(), stored, listed, self.layer.sinks, accumulate=torch.float64)
        return float((got - expected).abs().max())


def measure_one_layer(
    configs: dict[str, Config],
    requests: Sequence[int],
    ceilings: Ceilings,
    *,
    entries: int,
    repeats: int,
    advance: Advance,
) -> dict[str, Any]:
    """Times of every contender at every batch size, and errors against fp64.

    Args:
        configs: configuration of each contender; the first is the one that ratios are of.
        requests: batch sizes.
        ceilings: of the device.
        entries: compressed entries of each request to select from.
        repeats: rounds.
        advance: told after each batch size.
    """
    with ExitStack() as stack:
        contenders = {name: Contender(config) for name, config in configs.items()}
        for contender in contenders.values():
            stack.callback(contender.assembly.close)
        own, first = next(iter(contenders)), next(iter(contenders.values()))
        dims, device = first.dims, first.device
        keys = dims.list_keys(LayerType.CSA)
        calls = 20 if device.type == "cuda" else 1
        errors = {name: contender.error(entries) for name, contender in contenders.items()}
        results = {}
        for count in requests:
            works = {
                name: captured(contender.work(count, entries, calls), device)
                for name, contender in contenders.items()
            }
            synchronize(device)
            found: dict[str, Any] = summary(rounds(works, device, repeats=repeats, calls=calls), own)
            operations = 4 * count * dims.max_width * dims.num_heads * keys * dims.head_dim
            for item in found.values():
                item["tflops"] = operations / item["microseconds"] / 1e6
                item["matrix_share"] = item["tflops"] * 1e12 / ceilings.matrix_flops
            results[str(count)] = found
            advance(1)
        return {
            "rows_per_request": dims.max_width,
            "keys": keys,
            "heads": dims.num_heads,
            "head_dim": dims.head_dim,
            "errors": errors,
            "tuned": {name: contender.assembly.tuned for name, contender in contenders.items()},
            "requests": results,
        }
