"""The only place that wires things together: configuration in, ready assembly out."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Self

import torch

from dspark_factory.api import (
    ComputesInStep,
    MachineReasons,
    ObservesOutcome,
    Reports,
    StagesInputs,
    StepBatch,
    StepOutcome,
    StoresKv,
    Tunes,
)
from dspark_factory.config.schema import Config, DeviceKind
from dspark_factory.errors import ConfigError, PluginError, TaskError
from dspark_factory.kv.page_allocator import PageAllocator
from dspark_factory.memory.arena import Arena, BufferViews
from dspark_factory.models import create_model
from dspark_factory.pipeline.batch import StepResult
from dspark_factory.pipeline.capture_device import CaptureDevice
from dspark_factory.pipeline.pipeline import Pipeline
from dspark_factory.pipeline.recorder import provider_scope
from dspark_factory.pipeline.stages import Stage, StageClock
from dspark_factory.pipeline.step import Step
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import Mode
from dspark_factory.planning.plan import Plan, plan
from dspark_factory.registry import backend_plugins, buffer_plugins, load_object


class Assembly:
    """What :func:`build` returns: everything constructed, nothing captured yet. A context manager.

    Attributes:
        config: what it was built from.
        plan: its numbers.
        arena: its memory.
        backend: its attention backend; ``None`` after close.
        kv_store: keeps the KV rows that the backend reads; ``None`` after close.
        pages: request slots and KV pages.
        pipeline: its stages.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._clock = StageClock()
        with self._clock.run(Stage.PLAN):
            self.plan: Plan = plan(config)
        device = resolve_device(config)
        check_machine(self.plan)
        with self._clock.run(Stage.CONSTRUCT), torch.inference_mode(False), torch.no_grad():
            self._construct(device)

    def _construct(self, device: torch.device) -> None:
        config, dims = self.config, self.plan.dims
        self.arena = Arena(self.plan, device)
        self.backend: Any = load_object(backend_plugins[self.plan.backend].backend)()
        self.backend.bind(config.backend, self.arena.buffers, dims)
        bound = self._bind_providers()
        kv_store = self._find_kv_store(bound)
        self.kv_store: StoresKv | None = kv_store
        model = create_model(config.model, dims, self.arena.buffers, kv_store, self.backend, device)
        self.arena.seal()
        step = Step(
            dims,
            self.arena.buffers,
            model,
            [(name, item) for name, item in bound.items() if isinstance(item, ComputesInStep)],
        )
        self._observers = [(name, item) for name, item in bound.items() if isinstance(item, ObservesOutcome)]
        self._reporters = [(name, item) for name, item in bound.items() if isinstance(item, Reports)]
        self.pages = PageAllocator(dims)
        self.pipeline = Pipeline(
            config.pipeline,
            self.arena,
            step,
            model,
            [(name, item) for name, item in bound.items() if isinstance(item, StagesInputs)],
            clock=self._clock,
            device=CaptureDevice(device),
            tuning=self.tuning,
        )

    def _find_kv_store(self, bound: dict[str, object]) -> StoresKv:
        store = bound[self.plan.kv_store]
        if not isinstance(store, StoresKv):
            raise PluginError(
                f"backend {self.plan.backend!r} keeps its KV in {self.plan.kv_store!r}, whose bind() returned "
                "no store; return an object with layer(layer_type, place)"
            )
        return store

    def _bind_providers(self) -> dict[str, object]:
        """Every provider that is on, bound to views; a provider that allocates here is named by its error."""
        bound: dict[str, object] = {}
        for name in self.plan.providers:
            provider = load_object(buffer_plugins[name].provider)()
            with provider_scope(name):
                bound[name] = provider.bind(self.arena.buffers, self.plan.dims)
        return bound

    @property
    def dims(self) -> Dims:
        """The resolved geometry."""
        return self.plan.dims

    @property
    def buffers(self) -> BufferViews:
        """The arena's views by name."""
        return self.arena.buffers

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Seconds of every stage that ran, in order."""
        return {stage.value: seconds for stage, seconds in self._clock.seconds.items()}

    def prepare(self) -> None:
        """Run AUTOTUNE, WARMUP, CHECK, CAPTURE and FREEZE, in that order only."""
        self.pipeline.prepare()

    def replay(self, batch: StepBatch) -> StepResult:
        """Run one step and tell the providers that observe what it committed."""
        result = self.pipeline.replay(batch)
        if batch.key.mode is Mode.TARGET_VERIFY:
            outcome = StepOutcome(batch=batch, accept_lens=result.accept_lens)
            for name, observer in self._observers:
                with provider_scope(name):
                    observer.observe(outcome)
        return result

    def tuning(self) -> AbstractContextManager[None]:
        """Within it the backend may time its kernels for shapes that are new to it; AUTOTUNE runs in it."""
        return self.backend.tuning() if isinstance(self.backend, Tunes) else nullcontext()

    @property
    def tuned(self) -> dict[str, Any]:
        """What AUTOTUNE chose, by the backend's own names; says so where nothing is tunable."""
        if isinstance(self.backend, Tunes):
            return self.backend.tuned()
        return {"nothing tunable": f"backend {self.plan.backend} has one kernel for every shape"}

    def reports(self) -> dict[str, dict[str, Any]]:
        """What the providers that report have to say, by provider; empty after close."""
        reports: dict[str, dict[str, Any]] = {}
        for name, reporter in self._reporters:
            with provider_scope(name):
                reports[name] = reporter.report()
        return reports

    def close(self) -> None:
        """Release graphs and memory; safe to call again."""
        self.pipeline.close()
        self.arena.close()
        self._observers, self._reporters = [], []
        self.backend = self.kv_store = None  # both keep views of the memory
        if self.arena.device.type == "cuda":
            gc.collect()  # views in reference cycles, of plugins too, would keep a device's memory from the next build

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def build(config: Config) -> Assembly:
    """Plan and construct; call ``prepare()`` on the result before ``replay``.

    Works in any grad mode: under ``inference_mode`` too, every buffer is a normal tensor.

    Raises:
        ConfigError: the plan is refused.
        CheckpointError: the checkpoint cannot be loaded.
        TaskError: the device does not exist here.
    """
    if config.device.num_threads is not None:
        torch.set_num_threads(config.device.num_threads)
    return Assembly(config)


def check_machine(planned: Plan) -> None:
    """Refuse what the plan needs and the machine lacks, before any memory is touched.

    Raises:
        ConfigError: with every reason.
    """
    backend = load_object(backend_plugins[planned.backend].backend)()
    reasons = []
    if isinstance(backend, MachineReasons):
        reasons += [
            f"backend={planned.backend}: {reason}" for reason in backend.machine_reasons(planned.dims)
        ]
    if planned.dims.fused_kernels and find_spec("triton") is None:
        reasons.append(
            "device.fused_kernels=true, but Python package triton is missing; pip install 'dspark-factory[cuda]', or "
            "set device.fused_kernels=false"
        )
    if reasons:
        raise ConfigError(reasons)


def resolve_device(config: Config) -> torch.device:
    """The configured device.

    Raises:
        TaskError: it does not exist here.
    """
    if config.device.kind is DeviceKind.cuda and not torch.cuda.is_available():
        raise TaskError("device.kind=cuda, but torch finds no CUDA device here; set device=cpu")
    return torch.device(config.device.kind.value)
