"""Logits of every row, for those who inspect them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, extents
from dspark_factory.planning.dims import Dims


@dataclass(kw_only=True)
class LogitsSpec(BufferSpec):
    """Off by default: acceptance happens inside the step, so nothing else reads logits."""

    enabled: bool = False


class Logits:
    """``logits [rows, vocabulary]`` fp32."""

    def gate(self, spec: LogitsSpec, dims: Dims) -> Gate:
        """On when asked for."""
        return Gate.on("buffers.logits.enabled=true")

    def requests(self, spec: LogitsSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the largest step."""
        return [
            BufferRequest(
                name="logits",
                shape=extents(rows=dims.max_rows, vocabulary=dims.vocab_size),
                dtype=DType.FLOAT32,
            )
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> None:
        """Nothing to do per step: the model's step writes it."""
