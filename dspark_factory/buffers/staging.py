"""Writing host mirrors: real entries first, then the neutral value up to the graph's size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def write_padded(mirror: np.ndarray, values: Sequence[float], size: int, neutral: float) -> None:
    """Write ``values`` and fill up to ``size``, so that padding never sees what an earlier step left."""
    count = len(values)
    mirror[:count] = values
    mirror[count:size] = neutral
