"""Buffer providers: what they declare, what they are given, and the hooks that a bound one may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from dspark_factory.api.buffers import BufferRequest, BufferSpec, Gate

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from dspark_factory.api.steps import StepBatch, StepOutcome, StepState
    from dspark_factory.planning.dims import Dims


class Buffers(Protocol):
    """The arena's views by name. A name whose gate is off raises ``FeatureDisabled``."""

    def __getitem__(self, name: str) -> Tensor:
        """The whole buffer."""
        ...

    def __contains__(self, name: object) -> bool:
        """Whether the buffer exists, that is, whether its gate is on."""
        ...

    def take(self, name: str, size: int) -> Tensor:
        """First ``size`` entries along the first dimension; ``CapacityError`` beyond it."""
        ...

    def host(self, name: str) -> np.ndarray:
        """Host mirror of a ``HOST_STAGE`` or ``HOST_READ`` buffer, shared with the memory that the one copy uses."""
        ...


@runtime_checkable
class StagesInputs(Protocol):
    """A bound provider that writes host mirrors before each launch, outside the graph."""

    def stage(self, batch: StepBatch) -> None:
        """Write the host mirrors of this provider's ``HOST_STAGE`` buffers, padding included."""
        ...


@runtime_checkable
class ComputesInStep(Protocol):
    """A bound provider with work inside the captured region, after the model and acceptance."""

    def compute(self, step: StepState) -> None:
        """Read and write bound buffers only; no host sync, no allocation that outlives the step."""
        ...


@runtime_checkable
class ObservesOutcome(Protocol):
    """A bound provider that is told what a step committed, on the host."""

    def observe(self, outcome: StepOutcome) -> None:
        """Called once per step after acceptance."""
        ...


@runtime_checkable
class Reports(Protocol):
    """A bound provider that has something to say after a run, for the record and the console."""

    def report(self) -> dict[str, Any]:
        """Values that JSON can hold, by name. Called on the host between steps; it may read the device."""
        ...


SpecT = TypeVar("SpecT", bound=BufferSpec, contravariant=True)


class BufferProvider(Protocol[SpecT]):
    """Declares buffers and binds their views; never allocates."""

    def gate(self, spec: SpecT, dims: Dims) -> Gate:
        """Whether the feature is on. Pure, cheap, without torch."""
        ...

    def requests(self, spec: SpecT, dims: Dims) -> Sequence[BufferRequest]:
        """The buffers needed; asked only when the gate is on. Pure, cheap, without torch."""
        ...

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        """Keep views. The result may implement any of the three hook protocols."""
        ...
