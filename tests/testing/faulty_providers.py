"""A clean provider, and copies of it with one deliberate fault each. Planning needs no torch here either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark_factory.api import (
    BufferPlugin,
    BufferRequest,
    Buffers,
    BufferSpec,
    DType,
    Gate,
    Role,
    StepBatch,
    StepState,
    Update,
    extents,
)
from dspark_factory.planning.dims import Dims

if TYPE_CHECKING:
    from torch import Tensor


class Clean:
    """``seen_tokens [rows]``: the target's tokens, plus a staged number of each request's rows."""

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        return Gate.on("asked for")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        return [self.tokens(dims), self.counts(dims)]

    def tokens(self, dims: Dims) -> BufferRequest:
        return BufferRequest(
            name="seen_tokens", shape=extents(rows=self.rows(dims)), dtype=DType.INT32, role=self.role()
        )

    def counts(self, dims: Dims) -> BufferRequest:
        return BufferRequest(
            name="seen_counts",
            shape=extents(requests=dims.max_step_requests),
            dtype=DType.INT32,
            update=Update.HOST_STAGE,
        )

    def rows(self, dims: Dims) -> int:
        return max(dims.max_batch_rows, dims.extend_requests)

    def role(self) -> Role:
        return Role.TARGET

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        return Bound(buffers, dims)


class Bound:
    def __init__(self, buffers: Buffers, dims: Dims) -> None:
        self.buffers, self.dims = buffers, dims
        self.seen, self.counts = buffers["seen_tokens"], buffers["seen_counts"]
        self.mirror = buffers.host("seen_counts")

    def stage(self, batch: StepBatch) -> None:
        self.mirror[: batch.key.requests] = 0
        self.mirror[: len(batch.slots)] = batch.row_lens

    def compute(self, step: StepState) -> None:
        tokens = step.target_tokens
        counts = self.counts[: step.key.requests].sum().int()
        self.seen[: tokens.shape[0]].copy_(tokens + counts)


class AllocatesLate(Clean):
    """Outside inference mode only, as a buffer would be that the warm-up makes."""

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Late(Bound):
            late: Tensor | None = None

            def compute(self, step: StepState) -> None:
                import torch

                if self.late is None and not torch.is_inference_mode_enabled():
                    self.late = torch.zeros(64, dtype=torch.int32)
                if self.late is not None:
                    self.late[:1].fill_(1)

        return Late(buffers, dims)


class AllocatesUnderInferenceMode(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Lazy(Bound):
            late: Tensor | None = None

            def compute(self, step: StepState) -> None:
                import torch

                if self.late is None:
                    self.late = torch.zeros(64, dtype=torch.int32)
                self.late[:1].fill_(1)

        return Lazy(buffers, dims)


class AllocatesInBind(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        import torch

        bound = Bound(buffers, dims)
        bound.seen = torch.zeros(self.rows(dims), dtype=torch.int32)
        return bound


class Rebinds(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Rebinding(Bound):
            def compute(self, step: StepState) -> None:
                self.seen = self.seen + 1

        return Rebinding(buffers, dims)


class MovesItsBuffer(Clean):
    """Puts other memory behind the very tensor that the arena handed out."""

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Moving(Bound):
            def stage(self, batch: StepBatch) -> None:
                super().stage(batch)
                if batch.slots[0] != self.dims.scratch_slot:
                    self.seen.data = self.seen.clone()

        return Moving(buffers, dims)


class Syncs(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Syncing(Bound):
            def compute(self, step: StepState) -> None:
                self.seen[:1].fill_(int(step.target_tokens.sum().item()))

        return Syncing(buffers, dims)


class GrowsWithTheContext(Clean):
    def rows(self, dims: Dims) -> int:
        return dims.max_rows * dims.context_length


class WrongCapacity(Clean):
    """Sized by the active draft-token count, where a larger candidate is declared."""

    def rows(self, dims: Dims) -> int:
        return dims.max_batch_requests * (dims.num_draft_tokens or 1)


class WrongCapacityUnderAnotherUnit(Clean):
    """The same in a unit that nobody knows: only running it shows."""

    def tokens(self, dims: Dims) -> BufferRequest:
        size = dims.max_batch_requests * (dims.num_draft_tokens or 1)
        return BufferRequest(name="seen_tokens", shape=extents(things=size), dtype=DType.INT32)


class ChangesAPythonValue(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Counting(Bound):
            runs = 0

            def compute(self, step: StepState) -> None:
                self.runs += 1
                self.seen[:1].fill_(self.runs)

        return Counting(buffers, dims)


class FreezesARareValue(Clean):
    """A Python value from the batch that the inputs of warm-up and lint never change."""

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Rare(Bound):
            real = 0

            def stage(self, batch: StepBatch) -> None:
                super().stage(batch)
                self.real = int(batch.slots[0] != self.dims.scratch_slot)

            def compute(self, step: StepState) -> None:
                super().compute(step)
                self.seen[:1].fill_(self.real)

        return Rare(buffers, dims)


class WritesPastItsRows(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Past(Bound):
            def compute(self, step: StepState) -> None:
                super().compute(step)
                self.seen.as_strided((self.seen.shape[0] + 1,), (1,)).fill_(7)

        return Past(buffers, dims)


class WritesOthersBuffers(Clean):
    def bind(self, buffers: Buffers, dims: Dims) -> object:
        class Meddling(Bound):
            def compute(self, step: StepState) -> None:
                super().compute(step)
                if step.accept_lens is not None:
                    step.accept_lens.clamp_(max=1)

        return Meddling(buffers, dims)


class ImpureGate(Clean):
    times_asked = 0

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        type(self).times_asked += 1
        return Gate.on(f"asked {type(self).times_asked} times")


class ImpureRequests(Clean):
    def __init__(self) -> None:
        self.more = 0

    def rows(self, dims: Dims) -> int:
        self.more += 1
        return super().rows(dims) + self.more


class RaisingGate(Clean):
    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        return Gate.on(f"{2 * dims.num_draft_tokens} things")  # type: ignore[operator]


class ForgetsARole(Clean):
    def role(self) -> Any:
        return None


class WrongRole(Clean):
    """Asks for a buffer that no step of the target uses, and leaves the role at its default."""

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        draft = BufferRequest(name="draft_tokens", shape=extents(rows=dims.max_batch_rows), dtype=DType.INT32)
        return [*super().requests(spec, dims), draft]


class NeedsTorchToPlan(Clean):
    def rows(self, dims: Dims) -> int:
        import torch

        return int(torch.tensor(super().rows(dims)))


class KeepsMemoryAfterClose(Clean):
    kept: list[Tensor] = []  # noqa: RUF012

    def bind(self, buffers: Buffers, dims: Dims) -> object:
        self.kept.append(buffers["seen_tokens"])
        return Bound(buffers, dims)


class TakesAName(Clean):
    def counts(self, dims: Dims) -> BufferRequest:
        return BufferRequest(name="accept_lens", shape=extents(requests=dims.max_requests), dtype=DType.INT32)


@dataclass(kw_only=True)
class PlantedSpec(BufferSpec):
    """No option of its own."""


def planted(provider: type[Clean]) -> BufferPlugin:
    return BufferPlugin(
        name="planted", spec=PlantedSpec, provider=f"tests.testing.faulty_providers:{provider.__name__}"
    )
