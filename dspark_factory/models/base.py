"""What a step needs of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_factory.attention.tables import Frequencies, StepTables


class StepModel(Protocol):
    """Runs rows through all layers. Nothing in it syncs with the host or keeps a tensor between steps."""

    @property
    def frequencies(self) -> Frequencies:
        """Angular frequencies of its rotary embeddings, on the device."""
        ...

    def hidden(self, token_ids: Tensor, tables: StepTables) -> Tensor:
        """``[rows, hidden]`` final hidden states of ``token_ids [rows]`` int64; writes KV and state."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """``[rows, vocabulary]`` of the given hidden states."""
        ...

    def tensors(self) -> Iterable[Tensor]:
        """Weights and constants that a graph may read besides the arena."""
        ...
