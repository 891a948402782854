"""The query-by-query mask that a tree verifier reads: descriptor, and trees as rows of the mask; no torch."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferPlugin, BufferSpec

__all__ = ["plugin", "tree_rows"]

plugin = BufferPlugin(
    name="verify_mask",
    spec=BufferSpec,
    provider="dspark_verify_mask.provider:VerifyMask",
    on_demand=True,
)


def tree_rows(parents: Sequence[int]) -> list[list[bool]]:
    """``[rows, rows]`` of a draft tree: every row sees itself and its ancestors.

    Args:
        parents: row of each row's parent, which comes earlier; −1 for the anchor.

    Raises:
        ValueError: a parent does not come before its child; names the row.
    """
    seen: list[list[bool]] = []
    for row, parent in enumerate(parents):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} has parent {parent}; parents come before their children, -1 is none")
        visible = list(seen[parent]) if parent >= 0 else [False] * len(parents)
        visible[row] = True
        seen.append(visible)
    return seen
