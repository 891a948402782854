"""One life of an assembly: construct, all stages, the script of replays, close; and what was seen of it."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dspark_factory.api import BackendPlugin, BufferPlugin, StepBatch
from dspark_factory.config.schema import Config
from dspark_factory.factory import Assembly, build
from dspark_factory.pipeline.batch import StepResult
from dspark_factory.pipeline.recorder import provider_of
from dspark_factory.planning.plan import Plan
from dspark_factory.testing.memory import Fence, UseRecorder, foreign_tensors
from dspark_factory.testing.registration import GUARD_PREFIX, Watch, registered
from dspark_factory.testing.script import Script

REPLAY = "replay"
"""Stage name of a failure after FREEZE."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that ended a life early.

    Attributes:
        stage: pipeline stage that was running, or ``replay``.
        kind: class of the error.
        provider: the provider that was running, or ``None``.
        message: its text.
    """

    stage: str
    kind: str
    provider: str | None
    message: str

    def __str__(self) -> str:
        culprit = f" in provider {self.provider!r}" if self.provider else ""
        return f"{self.stage}{culprit}: {self.kind}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """One replay: its graph, what it committed, and a digest of every buffer afterwards."""

    key: str
    tokens: list[list[int]]
    digests: dict[str, str]


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """What was seen of one life.

    Attributes:
        plan: the plan, guard zones included; ``None`` if there was none.
        failure: the error that ended it early.
        steps: every replay.
        sizes: bytes and shape of every allocated buffer.
        foreign: tensors that the bound provider kept after ``bind`` and that the arena did not allocate.
        used: names of buffers that an operator of a decode or verify step touched.
        damage: where guard zones or gaps were overwritten.
        released: whether closing gave the memory back.
    """

    plan: Plan | None = None
    failure: Failure | None = None
    steps: list[StepSeen] = field(default_factory=list)
    sizes: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    damage: list[str] = field(default_factory=list)
    released: bool = True


def rehearse(
    config: Config,
    *,
    plugins: tuple[BufferPlugin | BackendPlugin, ...] = (),
    watch: Watch | None = None,
    eager: bool = False,
) -> Rehearsal:
    """Live one life.

    Args:
        config: composed and checked.
        plugins: known for its length.
        watch: the provider to look at.
        eager: replay by running the step instead of its graph.
    """
    seen = Rehearsal()
    with ExitStack() as stack:
        stack.enter_context(registered(*plugins))
        stack.enter_context(watch.active() if watch else nullcontext())
        memory = _Life(config, seen, watch, eager=eager).live()
        if watch is not None:
            watch.bound = None
    gc.collect()
    seen.released = memory is None or memory.expired()
    return seen


class _Life:
    def __init__(self, config: Config, seen: Rehearsal, watch: Watch | None, *, eager: bool) -> None:
        self._config, self._seen, self._watch, self._eager = config, seen, watch, eager
        self._stage = "CONSTRUCT"

    def live(self) -> StorageWeakRef | None:
        """From construction to close; errors become the failure, so that no traceback keeps memory alive."""
        memory: StorageWeakRef | None = None
        try:
            with build(self._config) as assembly:
                memory = StorageWeakRef(assembly.arena.block.untyped_storage())
                self._run(assembly)
        except Exception as error:
            self._seen.failure = Failure(
                self._stage, type(error).__name__, provider_of(error), str(error).strip()
            )
        return memory

    def _run(self, assembly: Assembly) -> None:
        seen = self._seen
        seen.plan = assembly.plan
        seen.sizes = {name: (view.nbytes, tuple(view.shape)) for name, view in assembly.buffers.items()}
        if self._watch is not None:
            seen.foreign = foreign_tensors(self._watch.bound, assembly.arena)
        fence = Fence(assembly.arena)
        self._prepare(assembly)
        self._stage = REPLAY
        self._replay(assembly, fence)
        assembly.pipeline.verify_addresses()

    def _prepare(self, assembly: Assembly) -> None:
        """All stages; operators of the warm-up tell which buffers a step uses."""
        pipeline = assembly.pipeline
        uses = UseRecorder(assembly.arena)
        warmup: Callable[[], None] = pipeline.warmup
        if self._watch is not None and not self._eager:

            def warmup() -> None:
                with uses:
                    pipeline.warmup()

        stages = {
            "AUTOTUNE": pipeline.autotune,
            "WARMUP": warmup,
            "CHECK": pipeline.check,
            "CAPTURE": pipeline.capture,
            "FREEZE": pipeline.freeze,
        }
        for self._stage, run in stages.items():
            run()
        self._seen.used = uses.names

    def _replay(self, assembly: Assembly, fence: Fence) -> None:
        keys = assembly.plan.graph_keys
        if self._eager:
            for graph in assembly.pipeline.graphs.values():
                graph.reset()
            assembly.pipeline.graphs.clear()  # the policy of the suite's geometry runs the step instead
            assembly.pipeline.uncaptured_batches = 1  # as intended here, so not worth the first one's warning
        script = Script(assembly.dims, assembly.pages, keys)

        def replay(batch: StepBatch) -> StepResult:
            self._stage = f"{REPLAY} of {batch.key}"
            return assembly.replay(batch)

        for result in script.play(replay):
            self._look(assembly, result, fence)

    def _look(self, assembly: Assembly, result: StepResult, fence: Fence) -> None:
        seen = self._seen
        seen.steps.append(
            StepSeen(
                key=str(result.key),
                tokens=result.tokens,
                digests={
                    name: _digest(view)
                    for name, view in assembly.buffers.items()
                    if not name.startswith(GUARD_PREFIX)
                },
            )
        )
        if not seen.damage:
            seen.damage = [f"after {result.key}: {place}" for place in fence.damage()]


def _digest(view: torch.Tensor) -> str:
    raw = view.detach().contiguous().view(torch.uint8) if view.dim() else view.reshape(1).view(torch.uint8)
    return hashlib.blake2b(raw.cpu().numpy().tobytes(), digest_size=16).hexdigest()
