"""Writing host mirrors: real entries first, then the neutral value up to the graph's size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def write_padded(mirror: np.ndarray, values: Sequence[float], size: int, neutral: float) -> None:
    """Write ``values`` and fill up to ``size``, so that padding never sees what an earlier step left."""
    count = len(values)
    mirror[:count] = values
    if count < size:
        mirror[count:size] = neutral


def write_rows(
    mirror: np.ndarray, rows: Sequence[Sequence[float]], lens: Sequence[int], neutral: float
) -> None:
    """Write ``rows`` into ``mirror [requests, width]``, each padded to the width, and all rows up to the last.

    Rows of one length, as in most steps, are one assignment.
    """
    import numpy as np

    count, width = len(rows), mirror.shape[1]
    flat = np.fromiter(chain.from_iterable(rows), mirror.dtype, sum(lens))
    if len(flat) == count * width:
        mirror[:count].reshape(-1)[:] = flat
    else:
        mirror[:count] = neutral
        mirror[:count][np.arange(width) < np.asarray(lens)[:, None]] = flat
    if count < len(mirror):
        mirror[count:] = neutral
