"""Attention backends: key lists, KV stores and the backend itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dspark_factory.api.buffers import BufferRequest
from dspark_factory.api.providers import Buffers

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_factory.planning.dims import Dims


class LayerKv(Protocol):
    """KV rows of one layer, in the format of the provider that keeps them."""

    def write(self, rows: Tensor, kv: Tensor) -> None:
        """Store ``kv [n, head_dim]`` at pool rows ``rows [n]`` int64; inside the captured region."""
        ...

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy pool rows ``source [n]`` to ``target [n]``, both int64."""
        ...

    def read(self, rows: Tensor) -> Tensor:
        """``[n, head_dim]`` fp32 of pool rows ``rows [n]`` int64, as attention sees them; for checks."""
        ...


@runtime_checkable
class StoresKv(Protocol):
    """A bound provider that keeps KV rows, such as ``kv_pools``; its descriptor says ``stores_kv=True``."""

    def layer(self, layer_type: str, place: int) -> LayerKv:
        """Store of the ``place``-th layer of a type."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLists:
    """Which pool rows every row of a step attends to.

    Attributes:
        rows: ``[rows, keys]`` int32 pool rows: in row ``r`` the first ``lens[r]`` are real, all others are −1.
        lens: ``[rows]`` int32.
    """

    rows: Tensor
    lens: Tensor


class LayerAttention(Protocol):
    """What a backend needs to attend in one layer."""

    @property
    def kind(self) -> str:
        """Layer type: ``sliding_attention``, ``compressed_sparse_attention`` or the heavily compressed."""
        ...

    @property
    def kv(self) -> LayerKv:
        """This layer's store, of the provider that the backend's descriptor names as ``kv``."""
        ...

    @property
    def pool(self) -> Tensor:
        """``[pool rows, head_dim]``: ring rows, in-flight rows and compressed rows of a store by ``kv_pools``."""
        ...

    @property
    def sinks(self) -> Tensor:
        """``[heads]`` fp32 attention-sink logits."""
        ...


class AttentionBackend(Protocol):
    """Attends over key lists, which are shared by all backends."""

    def reasons(self, dims: Dims) -> Sequence[str]:
        """Why this backend cannot serve these dims; empty means it can. Without torch."""
        ...

    def requests(self, spec: Any, dims: Dims) -> Sequence[BufferRequest]:
        """Workspaces, allocated by the arena like any buffer. Without torch."""
        ...

    def bind(self, spec: Any, buffers: Buffers, dims: Dims) -> None:
        """Keep options and views of the workspaces."""
        ...

    def forward(self, q: Tensor, layer: LayerAttention, keys: KeyLists) -> Tensor:
        """Attend.

        Args:
            q: ``[rows, heads, head_dim]``, rotated.
            layer: KV and sinks.
            keys: pool rows to attend to.

        Returns:
            ``[rows, heads, head_dim]`` in the dtype of ``q``; a row without any key is zero.
        """
        ...


@runtime_checkable
class MachineReasons(Protocol):
    """A backend that needs something of the machine; asked when it is built, not when it is planned."""

    def machine_reasons(self, dims: Dims) -> Sequence[str]:
        """Why it cannot run here: a missing package with its install line, a device that is too old."""
        ...


@runtime_checkable
class Tunes(Protocol):
    """A bound backend that chooses among kernels by timing them."""

    def tuning(self) -> AbstractContextManager[None]:
        """Around AUTOTUNE: within it a shape that is new may be timed, and memory allocated for that."""
        ...

    def tuned(self) -> dict[str, Any]:
        """What was chosen for which shape, for the record."""
        ...
