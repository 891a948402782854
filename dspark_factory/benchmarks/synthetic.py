"""Random KV and batches for a model without a checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor

from dspark_factory.api import KeyLists, StepBatch, StoresKv
from dspark_factory.factory import Assembly
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.graph_keys import Mode

ROWS_AT_ONCE = 1 << 16


def fill_kv(assembly: Assembly) -> None:
    """Random rows in every layer's store and random index keys, so that no scores tie; pages in order."""
    dims, store = assembly.dims, assembly.kv_store
    assert store is not None, "the assembly is open"
    device = assembly.arena.device
    generator = torch.Generator(device).manual_seed(0)
    for layer_type in LayerType:
        for place in range(dims.count(layer_type)):
            _fill_layer(store, layer_type, place, dims, generator)
    buffers = assembly.buffers
    if "index_keys" in buffers:
        for keys in buffers["index_keys"]:
            keys.normal_(generator=generator)
    if "page_table" in buffers:
        table = buffers["page_table"]
        held = torch.arange(dims.max_requests * table.shape[1], device=device).view(dims.max_requests, -1)
        table[: dims.max_requests].copy_(1 + held % max(dims.kv_pages, 1))


def _fill_layer(store: StoresKv, kind: LayerType, place: int, dims: Dims, generator: torch.Generator) -> None:
    layer, rows = store.layer(kind.value, place), dims.pool_rows(kind)
    for first in range(0, rows, ROWS_AT_ONCE):
        part = torch.arange(first, min(first + ROWS_AT_ONCE, rows), device=generator.device)
        values = torch.randn(len(part), dims.head_dim, generator=generator, device=generator.device)
        layer.write(part, values)


def verify_batch(dims: Dims, *, requests: int, context: int) -> StepBatch:
    """A verify step of ``requests`` requests of about ``context`` tokens each, with tokens that differ.

    Lengths are spread over the last ``hca_ratio`` positions before ``context``, as of requests that started at
    different times, so that as many of them complete a group in this step as in any other.
    """
    width = dims.max_width
    return make_batch(
        dims,
        Mode.TARGET_VERIFY,
        slots=range(requests),
        prefix_lens=[context - width - 1 - request * 37 % dims.hca_ratio for request in range(requests)],
        token_ids=[[(request + offset) % 64 for offset in range(width)] for request in range(requests)],
    )


def sparse_lists(dims: Dims, *, requests: int, entries: int, device: torch.device) -> KeyLists:
    """Lists of a verify step in a sparse layer: each row's window, and some of its request's ``entries`` entries."""
    generator = torch.Generator().manual_seed(requests)
    width, window, ring = dims.max_width, dims.sliding_window, dims.window_ring_rows
    row = torch.arange(requests * width)
    request, offset = row // width, row % width
    windows = request[:, None] * ring + (offset[:, None] + torch.arange(window)) % ring
    chosen = torch.rand(len(row), entries, generator=generator).argsort(dim=1)[:, : dims.selected_entries]
    first = dims.entries_per_page(LayerType.CSA) + request * dims.max_entries(LayerType.CSA)
    selected = dims.entry_region_start + first[:, None] + chosen.sort(dim=1).values
    lists: Tensor = torch.cat([windows, selected], dim=1).int().to(device)
    lens = torch.full((len(row),), lists.shape[1], dtype=torch.int32, device=device)
    return KeyLists(rows=lists, lens=lens)
