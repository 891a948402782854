"""Inputs of sampling: temperatures and the random numbers of rejection sampling."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.api import BufferRequest, Buffers, BufferSpec, DType, Gate, StepBatch, Update, extents
from dspark_factory.buffers.staging import write_padded, write_rows
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode


class SamplingInputs:
    """``temperatures [requests]`` and ``uniforms [requests, width]``, fp32.

    Random numbers come from the host, the first of a request for its bonus token, then one per draft, so that a
    replay is reproducible and a request's numbers do not depend on its neighbours.
    """

    def gate(self, spec: BufferSpec, dims: Dims) -> Gate:
        """On when the workload samples."""
        return Gate.on("workload.temperature above 0") if dims.sampling else Gate.off("decoding is greedy")

    def requests(self, spec: BufferSpec, dims: Dims) -> Sequence[BufferRequest]:
        """Sized by the most requests of a step; an extend step samples one token per request."""
        return [
            BufferRequest(
                name="temperatures",
                shape=extents(requests=dims.max_step_requests),
                dtype=DType.FLOAT32,
                fill=1.0,
                update=Update.HOST_STAGE,
            ),
            BufferRequest(
                name="uniforms",
                shape=extents(requests=dims.max_step_requests, numbers=dims.max_width),
                dtype=DType.FLOAT32,
                update=Update.HOST_STAGE,
            ),
        ]

    def bind(self, buffers: Buffers, dims: Dims) -> BoundSamplingInputs:
        """Keep the host mirrors."""
        return BoundSamplingInputs(buffers)


class BoundSamplingInputs:
    """Stages temperatures and numbers; padding requests sample harmlessly at temperature 1."""

    def __init__(self, buffers: Buffers) -> None:
        self._temperatures = buffers.host("temperatures")
        self._uniforms = buffers.host("uniforms")

    def stage(self, batch: StepBatch) -> None:
        """Write both; an idle step has nothing to sample."""
        if batch.key.mode is Mode.IDLE:
            return
        write_padded(self._temperatures, batch.temperatures, batch.key.requests, 1.0)
        numbers = batch.uniforms
        write_rows(self._uniforms[: batch.key.requests], numbers, list(map(len, numbers)), 0.5)
