"""The pipeline: stages in their fixed order, then replay, then close."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from dspark_factory.api import StagesInputs, StepBatch
from dspark_factory.config.schema import BucketPolicy, PipelineSpec
from dspark_factory.errors import AddressChanged, CaptureError, NoBucket, StageOrderError
from dspark_factory.memory.arena import Arena
from dspark_factory.models.base import StepModel
from dspark_factory.pipeline.batch import StepResult, padded, split
from dspark_factory.pipeline.capture_device import CaptureDevice
from dspark_factory.pipeline.graphs import Graph
from dspark_factory.pipeline.lint import Finding, lint_step, raise_on
from dspark_factory.pipeline.outputs import read_outputs
from dspark_factory.pipeline.probes import neutral_batch, probe_batches
from dspark_factory.pipeline.recorder import blame
from dspark_factory.pipeline.stages import Stage, StageClock
from dspark_factory.pipeline.step import Step
from dspark_factory.planning.graph_keys import GraphKey, Mode, smallest_fitting

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """What runs a step; dropped as a whole on close, so that nothing keeps the arena's memory alive."""

    step: Step
    model: StepModel
    stagers: tuple[tuple[str, StagesInputs], ...]


class Pipeline:
    """Warm-up, capture and replay of one step over one arena.

    AUTOTUNE, WARMUP, CHECK and CAPTURE run the very same callable on the very same shapes, with inputs that touch
    scratch memory only, so a capture never writes live KV.

    Attributes:
        clock: the stage reached, and the seconds of each.
        graphs: captured graphs by key.
        uncaptured_batches: batches that ran eagerly because no bucket fitted.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        arena: Arena,
        step: Step,
        model: StepModel,
        stagers: Sequence[tuple[str, StagesInputs]],
        *,
        clock: StageClock,
        device: CaptureDevice,
        tuning: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._spec, self._arena = spec, arena
        self._parts: StepParts | None = StepParts(step=step, model=model, stagers=tuple(stagers))
        self._device, self._tuning = device, tuning
        self.clock = clock
        self.graphs: dict[GraphKey, Graph] = {}
        self._chosen: dict[GraphKey, GraphKey] = {}
        self.uncaptured_batches = 0

    @property
    def keys(self) -> tuple[GraphKey, ...]:
        """Graphs to capture, largest first."""
        return self._arena.plan.graph_keys

    @property
    def graph_nbytes(self) -> int:
        """Device memory that the graphs hold between replays: their pool, and what the driver took for them."""
        return self._device.pool_nbytes() + sum(graph.nbytes for graph in self.graphs.values())

    @property
    def model(self) -> StepModel:
        """What runs the rows.

        Raises:
            StageOrderError: the pipeline is closed.
        """
        return self._live.model

    def prepare(self) -> None:
        """AUTOTUNE, WARMUP, CHECK, CAPTURE, FREEZE."""
        self.autotune()
        self.warmup()
        self.check()
        self.capture()
        self.freeze()

    def autotune(self) -> None:
        """Run every shape to be captured under inference mode, where libraries tune their kernels."""
        with self.clock.run(Stage.AUTOTUNE), torch.inference_mode(), self._tuning():
            for key in self.keys:
                self._run_neutral(key)

    def warmup(self) -> None:
        """Run every shape eagerly, outside inference mode, as capture will.

        Raises:
            CaptureError: a run fails for a reason that the lint can name, such as a buffer born in AUTOTUNE.
        """
        with self.clock.run(Stage.WARMUP), torch.no_grad(), self._device.warm():
            for key in self.keys:
                try:
                    for _ in range(self._spec.warmup_runs):
                        self._run_neutral(key)
                except RuntimeError:
                    raise_on(self._lint(key))
                    raise

    def check(self) -> None:
        """Every buffer is a normal tensor at its sealed address, and the capture lint is clean.

        Raises:
            CaptureError: with every finding, its provider and its place.
        """
        with self.clock.run(Stage.CHECK):
            self.verify_addresses()
            for key in self._smallest_of_each_form():
                raise_on(self._lint(key))

    def capture(self) -> None:
        """Capture every shape, largest first, into one shared pool.

        Raises:
            CaptureError: naming provider and place; no half-made graph is left, and a new capture works.
        """
        with self.clock.run(Stage.CAPTURE), torch.no_grad():
            try:
                for key in self.keys:
                    self.stage(neutral_batch(self._arena.plan.dims, key))
                    graph = self._device.create()
                    graph.capture(lambda key=key: self._copies_and_step(key))
                    self.graphs[key] = graph
            except BaseException:
                self._drop_graphs()
                self._device.renew_pool()
                raise

    def freeze(self) -> None:
        """Addresses are those that were sealed; every requested graph exists.

        Raises:
            AddressChanged: a buffer moved.
            CaptureError: a graph is missing and ``pipeline.strict=true``.
        """
        with self.clock.run(Stage.FREEZE):
            self.verify_addresses()
            missing = [str(key) for key in self.keys if key not in self.graphs]
            if missing and self._spec.strict:
                raise CaptureError(
                    f"{len(missing)} of {len(self.keys)} requested graphs were not captured: {missing}"
                )
            for name in missing:
                logger.warning("graph %s was requested but not captured", name)

    def stage(self, batch: StepBatch) -> None:
        """Write the batch into the staged buffers and bring them to the device in one copy."""
        self._write(batch)
        self._arena.copy_staged()

    def _write(self, batch: StepBatch) -> None:
        """Write the batch into the host mirrors, once the last copy has left them."""
        self._arena.await_staged()
        running = ""
        try:
            for name, stager in self._live.stagers:
                running = name
                stager.stage(batch)
        except BaseException as error:
            blame(error, running)
            raise

    def replay(self, batch: StepBatch) -> StepResult:
        """Run a step: on the smallest captured graph that fits, else by ``pipeline.bucket_policy``.

        Extend steps are not captured and run eagerly by design.

        Raises:
            NoBucket: nothing fits and the policy is ``error``; names the batch and the largest bucket.
            StageOrderError: the pipeline is not frozen, or closed.
        """
        self.clock.require(Stage.FREEZE, "replay")
        if batch.key.mode is Mode.IDLE:
            return StepResult(key=batch.key, tokens=[])
        if batch.key.mode is not Mode.EXTEND and self._fitting(batch) is None:
            return self._without_bucket(batch)
        return self.result(self.launch(batch))

    def launch(self, batch: StepBatch, *, eager: bool = False) -> StepBatch:
        """Start a step and do not wait for it: one graph launch, which begins and ends with one copy.

        Args:
            batch: as from :func:`~dspark_factory.pipeline.batch.make_batch`.
            eager: run the step's own operations on its graph's shapes instead of the graph, for comparison.

        Returns:
            The batch as it runs, padded to its graph, for :meth:`result`.
        """
        self.clock.require(Stage.FREEZE, "launch")
        key = None if batch.key.mode is Mode.EXTEND else self._fitting(batch)
        if key is not None:
            batch = padded(batch, key)
        if key is None or eager:
            self._run(batch)
        else:
            self._write(batch)
            self.graphs[key].replay()
        return batch

    def result(self, launched: StepBatch) -> StepResult:
        """Wait for the last launched step and read what it committed."""
        self._arena.await_outputs()
        return read_outputs(self._arena.buffers, launched)

    def verify_addresses(self) -> None:
        """Every buffer lies where CONSTRUCT put it and is a normal tensor; cheap enough to call while debugging.

        Raises:
            AddressChanged: a buffer moved; names it and its provider.
            CaptureError: a buffer is an inference tensor.
        """
        arena = self._arena
        moved = [f"{name} (provider {arena.provider_of(name)})" for name in arena.moved()]
        if moved:
            raise AddressChanged(
                f"buffers no longer lie where CONSTRUCT put them: {', '.join(moved)}; a graph would replay the old "
                "address, so update buffers in place and never rebind them"
            )
        inference = [f"{name} (provider {arena.provider_of(name)})" for name in arena.inference_tensors()]
        if inference:
            raise CaptureError(
                f"buffers are inference tensors and cannot be updated in place: {', '.join(inference)}"
            )

    def close(self) -> None:
        """Drop all graphs; afterwards nothing can be replayed."""
        self._drop_graphs()
        self._parts = None
        self.clock.close()

    @property
    def _live(self) -> StepParts:
        if self._parts is None:
            raise StageOrderError(Stage.CLOSED.value, "a step", "build another assembly")
        return self._parts

    def _without_bucket(self, batch: StepBatch) -> StepResult:
        largest = max((key.requests for key in self.graphs), default=0)
        if self._spec.bucket_policy is BucketPolicy.error:
            raise NoBucket(
                f"a batch of {len(batch.slots)} requests ({batch.key}) fits no captured graph, the largest holds "
                f"{largest} requests; add the size to pipeline.capture_requests, or set pipeline.bucket_policy"
            )
        self.uncaptured_batches += 1
        if self.uncaptured_batches == 1:
            logger.warning(
                "a batch of %d requests (%s) fits no captured graph, the largest holds %d; "
                "pipeline.bucket_policy=%s from now on, without further warning",
                len(batch.slots), batch.key, largest, self._spec.bucket_policy.value,
            )  # fmt: skip
        if self._spec.bucket_policy is BucketPolicy.split and len(batch.slots) > largest > 0:
            results = [self.replay(part) for part in split(batch, largest)]
            return StepResult(
                key=batch.key, tokens=[tokens for result in results for tokens in result.tokens]
            )
        return self.result(self.launch(batch))

    def _fitting(self, batch: StepBatch) -> GraphKey | None:
        """The graph for a batch, remembered by the key that it needs."""
        key = self._chosen.get(batch.key)
        if key is None or key not in self.graphs:
            key = smallest_fitting(tuple(self.graphs), batch.key)
            if key is not None:
                self._chosen[batch.key] = key
        return key

    def _run(self, batch: StepBatch) -> None:
        with torch.no_grad():
            self._write(batch)
            self._copies_and_step(batch.key)

    def _copies_and_step(self, key: GraphKey) -> None:
        self._arena.copy_staged()
        self._live.step.run(key)
        self._arena.copy_outputs()

    def _run_neutral(self, key: GraphKey) -> None:
        self.stage(neutral_batch(self._arena.plan.dims, key))
        self._live.step.run(key)

    def _lint(self, key: GraphKey) -> list[Finding]:
        batches = probe_batches(self._arena.plan.dims, key)
        return lint_step(
            lambda: self._live.step.run(key),
            [lambda batch=batch: self.stage(batch) for batch in batches],
            known=[self._arena.block, *self._live.model.tensors()],
            watched=self._arena.buffers,
        )

    def _smallest_of_each_form(self) -> Iterator[GraphKey]:
        """One key of every mode, form and width: what differs among the others is only the batch size."""
        smallest: dict[tuple[object, ...], GraphKey] = {}
        for key in self.keys:
            smallest[(key.mode, key.form, key.width)] = key
        yield from smallest.values()

    def _drop_graphs(self) -> None:
        for graph in self.graphs.values():
            graph.reset()
        self.graphs.clear()
        self._chosen.clear()
