"""The only allocator: one block per device and memory kind, allocated in CONSTRUCT, then sealed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from dspark_factory.api import BufferRequest, Gate, Update
from dspark_factory.errors import AllocationAfterSeal, CapacityError, FeatureDisabled
from dspark_factory.planning.layout import PlannedBuffer
from dspark_factory.planning.plan import Plan


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of an api dtype's value."""
    return getattr(torch, name)


class BufferViews(Mapping[str, Tensor]):
    """Read-only views by name; see :class:`~dspark_factory.api.Buffers` for the contract."""

    def __init__(
        self, tensors: dict[str, Tensor], mirrors: dict[str, np.ndarray], gates: Mapping[str, Gate]
    ) -> None:
        self._tensors, self._mirrors, self._gates = tensors, mirrors, gates

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise FeatureDisabled(name, self._reason(name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def take(self, name: str, size: int) -> Tensor:
        """First ``size`` entries along the first dimension.

        Raises:
            CapacityError: the buffer is smaller.
        """
        tensor = self[name]
        if size > tensor.shape[0]:
            raise CapacityError(
                f"buffer {name!r} holds {tensor.shape[0]} entries, {size} were asked for; declare the larger batch "
                "in pipeline.capture_requests or the larger count in speculative.draft_token_candidates"
            )
        return tensor[:size]

    def host(self, name: str) -> np.ndarray:
        """Host mirror of a buffer that the host stages or reads."""
        if name not in self._mirrors:
            self[name]
            raise CapacityError(
                f"buffer {name!r} has no host mirror: its update is neither host_stage nor host_read"
            )
        return self._mirrors[name]

    def _reason(self, name: str) -> str:
        gate = self._gates.get(name)
        if gate is not None and not gate.enabled:
            return gate.reason
        off = [f"{other} ({gate.reason})" for other, gate in self._gates.items() if not gate.enabled]
        return f"no provider that is on offers it; off are {', '.join(off) or 'none'}"


class Arena:
    """Memory of a plan on one device.

    Allocation happens here, outside inference mode whatever mode the caller is in, so that every buffer is a
    normal tensor that may be updated in place anywhere.

    Attributes:
        buffers: views by name.
        nbytes: sum over buffers; equals the plan's.
        block: the one device allocation.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        with torch.inference_mode(False):
            self.block = torch.zeros(plan.block_nbytes, dtype=torch.uint8, device=device)
            # What the host stages and what it reads lie side by side at the front, here as in the block.
            self._host = torch.zeros(
                plan.staged_nbytes + plan.read_nbytes, dtype=torch.uint8, pin_memory=device.type == "cuda"
            )
            tensors = {buffer.name: _view(self.block, buffer) for buffer in plan.buffers}
            mirrors = {
                buffer.name: _view(self._host, buffer)
                for buffer in plan.buffers
                if buffer.update in (Update.HOST_STAGE, Update.HOST_READ)
            }
            for buffer in plan.buffers:
                for tensor in (tensors[buffer.name], mirrors.get(buffer.name)):
                    if tensor is not None and buffer.fill:
                        tensor.fill_(buffer.fill)
        self.buffers = BufferViews(
            tensors, {name: tensor.numpy() for name, tensor in mirrors.items()}, plan.gates
        )
        self.nbytes = sum(tensor.nbytes for tensor in tensors.values())
        self._addresses: dict[str, int] | None = None
        cuda = device.type == "cuda"
        # External, so that copies inside a graph record them too.
        self._staged = torch.cuda.Event(external=True) if cuda else None
        self._outputs = torch.cuda.Event(external=True) if cuda else None
        size, end = plan.staged_nbytes, plan.staged_nbytes + plan.read_nbytes
        self._copies = (
            (self.block[:size], self._host[:size]),
            (self._host[size:end], self.block[size:end]),
        )

    @property
    def sealed(self) -> bool:
        """Whether CONSTRUCT is over."""
        return self._addresses is not None

    def allocate(self, provider: str, request: BufferRequest) -> Tensor:
        """The planned buffer of a request.

        Raises:
            AllocationAfterSeal: CONSTRUCT is over.
            FeatureDisabled: the plan has no such buffer.
        """
        if self.sealed:
            raise AllocationAfterSeal(provider, request.name)
        return self.buffers[request.name]

    def seal(self) -> None:
        """End CONSTRUCT: remember every address."""
        self._addresses = {name: tensor.data_ptr() for name, tensor in self.buffers.items()}

    def moved(self) -> list[str]:
        """Names of buffers that no longer lie where they were sealed."""
        addresses = self._addresses or {}
        return [name for name, address in addresses.items() if self.buffers[name].data_ptr() != address]

    def inference_tensors(self) -> list[str]:
        """Names of buffers that are inference tensors; always empty unless something replaced them."""
        return [name for name, tensor in self.buffers.items() if tensor.is_inference()]

    def copy_staged(self) -> None:
        """Bring every staged buffer to the device, in one copy on the current stream."""
        target, source = self._copies[0]
        target.copy_(source, non_blocking=True)
        if self._staged is not None:
            self._staged.record()

    def await_staged(self) -> None:
        """Wait until the last staged copy has left the host mirrors, so that they may be written again."""
        if self._staged is not None:
            self._staged.synchronize()

    def copy_outputs(self) -> None:
        """Bring every buffer that the host reads to its mirror, in one copy on the current stream."""
        target, source = self._copies[1]
        target.copy_(source, non_blocking=True)
        if self._outputs is not None:
            self._outputs.record()

    def await_outputs(self) -> None:
        """Wait until the last copy of the outputs has arrived."""
        if self._outputs is not None:
            self._outputs.synchronize()

    def provider_of(self, name: str) -> str:
        """Provider that asked for a buffer."""
        return next(buffer.provider for buffer in self.plan.buffers if buffer.name == name)

    def close(self) -> None:
        """Drop every reference to the memory."""
        self.buffers = BufferViews({}, {}, self.plan.gates)
        self.block = self._host = empty = torch.empty(0, dtype=torch.uint8)
        self._copies = ((empty, empty), (empty, empty))
        self._addresses = {}


def _view(block: Tensor, buffer: PlannedBuffer) -> Tensor:
    raw = block[buffer.offset : buffer.offset + buffer.nbytes]
    return raw.view(torch_dtype(buffer.dtype.value)).view(buffer.sizes)
