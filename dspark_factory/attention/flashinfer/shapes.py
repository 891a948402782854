"""Shapes that kernels are chosen and planned for. Numbers only."""

from __future__ import annotations

from typing import NamedTuple

from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.graph_keys import captured_keys


class Shape(NamedTuple):
    """Rows of a step, and the length of their lists."""

    rows: int
    keys: int


def list_lengths(dims: Dims) -> tuple[int, ...]:
    """Length of the key lists of each layer type that the model has."""
    longest = {
        LayerType.SLIDING: dims.sliding_window,
        LayerType.CSA: dims.sliding_window + dims.selected_entries,
        LayerType.HCA: dims.sliding_window + dims.max_entries(LayerType.HCA),
    }
    return tuple(sorted({longest[kind] for kind in dims.layer_types}))


def captured_shapes(dims: Dims) -> tuple[Shape, ...]:
    """Every shape of a captured step, the largest first."""
    rows = sorted({key.rows for key in captured_keys(dims)}, reverse=True)
    return tuple(Shape(count, keys) for count in rows for keys in reversed(list_lengths(dims)))
