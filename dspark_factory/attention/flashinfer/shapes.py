"""Shapes that kernels are chosen and planned for. Numbers only."""

from __future__ import annotations

from typing import NamedTuple

from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import captured_keys

PLAN_NBYTES = 1 << 20
"""Of one plan of an MLA kernel; see :mod:`~dspark_factory.attention.flashinfer.mla`."""
WORKSPACE_NBYTES = 40 << 20
"""Partial results, shared by all plans: twice 132 blocks of 64 × 512 fp32, and room for more multiprocessors."""


class Shape(NamedTuple):
    """Rows of a step, and the length of their lists."""

    rows: int
    keys: int


def list_lengths(dims: Dims) -> tuple[int, ...]:
    """Length of the key lists of each layer type that the model has."""
    return tuple(sorted({dims.list_keys(kind) for kind in dims.layer_types}))


def captured_shapes(dims: Dims) -> tuple[Shape, ...]:
    """Every shape of a captured step, the largest first."""
    rows = sorted({key.rows for key in captured_keys(dims)}, reverse=True)
    return tuple(Shape(count, keys) for count in rows for keys in reversed(list_lengths(dims)))
