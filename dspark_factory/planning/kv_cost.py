"""What requests cost in memory, asked of the providers themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dspark_factory.api import BufferPlugin, BufferSpec
from dspark_factory.planning.dims import Dims
from dspark_factory.registry import load_object

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCost:
    """What requests cost in state, in bytes."""

    nbytes_per_token: float
    """Compressed entries and indexer keys that a further token adds, on average."""
    nbytes_per_request: int
    """Rings, compressor state and page-table row, independent of the context."""
    nbytes_per_full_request: int
    """A request at full context."""
    requests_that_fit: int | None
    """Requests at full context that fit in ``device.memory_gib``; ``None`` where that is not given."""


def kv_cost(
    dims: Dims,
    providers: Sequence[BufferPlugin],
    specs: Mapping[str, BufferSpec],
    block_nbytes: int,
    memory_gib: float | None,
) -> KvCost:
    """The cost as the difference that one more page, and one more request slot, makes to what is asked for.

    Args:
        dims: the geometry planned.
        providers: those that are on.
        specs: their options.
        block_nbytes: size of everything planned.
        memory_gib: of the device, where it is known.
    """

    def nbytes(changed: Dims) -> int:
        return sum(
            request.nbytes
            for plugin in providers
            for request in load_object(plugin.provider)().requests(specs[plugin.name], changed)
        )

    planned = nbytes(dims)
    per_page = nbytes(replace(dims, kv_pages=dims.kv_pages + 1)) - planned if dims.kv_pages else 0
    per_request = nbytes(replace(dims, max_requests=dims.max_requests + 1)) - planned
    full = per_request + dims.pages_per_request * per_page
    fit = None
    if memory_gib is not None:
        rest = block_nbytes - dims.max_requests * per_request - dims.kv_pages * per_page
        fit = max(int((memory_gib * GIB - rest) // full), 0)
    return KvCost(
        nbytes_per_token=per_page / dims.page_tokens,
        nbytes_per_request=per_request,
        nbytes_per_full_request=full,
        requests_that_fit=fit,
    )
