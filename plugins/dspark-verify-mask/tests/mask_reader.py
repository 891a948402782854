"""A tiny tree verifier's reader: stages a tree for every request, and counts what each row may see in its step."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_verify_mask import tree_rows

from dspark_factory.api import (
    BufferPlugin,
    BufferRequest,
    Buffers,
    BufferSpec,
    DType,
    Gate,
    StepBatch,
    StepState,
    extents,
)
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode


def binary_tree(rows: int) -> list[int]:
    """Parents of a binary tree in breadth-first order."""
    return [(row - 1) // 2 if row else -1 for row in range(rows)]


class MaskReader:
    """``visible_rows [rows]`` int64: rows of its own step that each row sees."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        return Gate.on("reads the mask") if dims.speculation else Gate.off("speculation is off")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        return [
            BufferRequest(name="visible_rows", shape=extents(rows=dims.max_batch_rows), dtype=DType.INT64)
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundMaskReader:
        return BoundMaskReader(buffers, dims)


class BoundMaskReader:
    """Stages binary trees; applies them to the window table inside the step."""

    def __init__(self, buffers: Buffers, dims: Dims) -> None:
        self._mirror, self._mask = buffers.host("verify_mask"), buffers["verify_mask"]
        self._visible, self._dims = buffers["visible_rows"], dims

    def stage(self, batch: StepBatch) -> None:
        if batch.key.mode is Mode.TARGET_VERIFY:
            width = batch.key.width
            self._mirror[: batch.key.requests, :width, :width] = tree_rows(binary_tree(width))

    def compute(self, step: StepState) -> None:
        from dspark_verify_mask.visibility import apply_verify_mask

        from dspark_factory.attention.rows import window_indices

        if step.key.mode is not Mode.TARGET_VERIFY:
            return
        indices = window_indices(step.rows, self._dims, in_flight=False)
        visible = apply_verify_mask(indices, self._mask, step.rows, self._dims)
        hidden = (visible != indices).sum(1)
        self._visible[: step.key.rows].copy_(step.rows.offsets() + 1 - hidden)


READER = BufferPlugin(
    name="mask_reader",
    spec=BufferSpec,
    provider="mask_reader:MaskReader",
    requires=("verify_mask",),
    reads=("verify_mask",),
)
