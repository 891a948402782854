"""The plan: gates with reasons, every buffer with its bytes and place, graph keys, KV cost. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_factory.api import BufferRequest, DType, Extent, Gate, Role, Update
from dspark_factory.config.model_shape import resolve_model
from dspark_factory.config.schema import Config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.asking import ask
from dspark_factory.planning.dims import Dims, LayerType
from dspark_factory.planning.graph_keys import GraphKey, captured_keys
from dspark_factory.planning.needed import missing_providers
from dspark_factory.planning.ordering import in_dependency_order
from dspark_factory.planning.resolve import resolve_dims, speculation_gate
from dspark_factory.registry import backend_plugins, buffer_plugins

ALIGNMENT_NBYTES = 256
"""Start of every buffer in its block; what tensor-core loads and pinned copies like."""

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBuffer:
    """One buffer: what it is, who asked for it, and where it lies in the device block."""

    name: str
    provider: str
    role: Role
    shape: tuple[Extent, ...]
    dtype: DType
    nbytes: int
    offset: int
    fill: float | int | bool | None
    baked: bool
    update: Update

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape without units."""
        return tuple(extent.size for extent in self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCost:
    """What requests cost in KV state, in bytes."""

    nbytes_per_token: float
    """Compressed entries and indexer keys that a further token adds, on average."""
    nbytes_per_request: int
    """Rings, compressor state and page-table row, independent of the context."""
    nbytes_per_full_request: int
    """A request at full context."""
    requests_that_fit: int | None
    """Requests at full context that fit in ``device.memory_gib``; ``None`` where that is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything known before any memory is touched.

    Attributes:
        dims: the resolved geometry.
        gates: feature or provider → on or off, with the reason.
        buffers: in layout order; the staged ones first, so that one copy covers them.
        providers: names of the providers that are on, in dependency order.
        backend: registered name of the attention backend.
        graph_keys: graphs to capture, largest first.
        nbytes: sum over buffers.
        block_nbytes: size of the one device allocation, alignment included.
        staged_nbytes: leading part of the block that is staged on the host and copied at once.
        kv: cost of requests.
        notes: what a user should know, one line each.
    """

    dims: Dims
    gates: dict[str, Gate]
    buffers: tuple[PlannedBuffer, ...]
    providers: tuple[str, ...]
    backend: str
    graph_keys: tuple[GraphKey, ...]
    nbytes: int
    block_nbytes: int
    staged_nbytes: int
    kv: KvCost
    notes: tuple[str, ...]

    @property
    def nbytes_by_provider(self) -> dict[str, int]:
        """Bytes per provider, in layout order."""
        return self._sum("provider")

    @property
    def nbytes_by_role(self) -> dict[str, int]:
        """Bytes per role."""
        totals = {role.value: 0 for role in Role}
        for buffer in self.buffers:
            totals[buffer.role.value] += buffer.nbytes
        return totals

    def _sum(self, attribute: str) -> dict[str, int]:
        totals: dict[str, int] = {}
        for buffer in self.buffers:
            key = getattr(buffer, attribute)
            totals[key] = totals.get(key, 0) + buffer.nbytes
        return totals


def plan(config: Config) -> Plan:
    """Plan a configuration that passed its rules.

    Raises:
        ConfigError: the backend cannot serve it, a plugin raises when it is asked, providers depend on one another
            in a circle or want the same buffer name, or it does not fit in ``device.memory_gib``; all reasons
            at once.
    """
    dims = resolve_dims(config)
    speculation = speculation_gate(config, resolve_model(config.model))
    backend_plugin = backend_plugins[config.backend.kind]
    order = in_dependency_order({name: buffer_plugins[name] for name in config.buffers})
    answers = ask(order, config.buffers, backend_plugin, config.backend, dims)
    gates, asked = answers.gates, answers.requests
    reasons = [*answers.reasons, *_name_clashes(asked)]
    reasons = reasons or missing_providers(gates, dims)
    if reasons:
        raise ConfigError(reasons)
    buffers, block_nbytes, staged_nbytes = _lay_out(asked)
    result = Plan(
        dims=dims,
        gates={"speculation": speculation, **gates},
        buffers=buffers,
        providers=tuple(plugin.name for plugin in order if gates[plugin.name].enabled),
        backend=backend_plugin.name,
        graph_keys=captured_keys(dims),
        nbytes=sum(buffer.nbytes for buffer in buffers),
        block_nbytes=block_nbytes,
        staged_nbytes=staged_nbytes,
        kv=_kv_cost(dims, buffers, block_nbytes, config.device.memory_gib),
        notes=_notes(config, speculation),
    )
    _check_memory(config, result)
    return result


def _name_clashes(asked: Sequence[tuple[str, BufferRequest]]) -> list[str]:
    owners: dict[str, str] = {}
    reasons = []
    for provider, request in asked:
        if request.name in owners:
            reasons.append(
                f"buffer {request.name!r} is asked for by {owners[request.name]} and by {provider}; "
                "buffer names are unique, rename one"
            )
        owners.setdefault(request.name, provider)
    return reasons


def _lay_out(asked: Sequence[tuple[str, BufferRequest]]) -> tuple[tuple[PlannedBuffer, ...], int, int]:
    """Offsets in the one device block: staged buffers first, so that a single copy covers them."""
    staged = [item for item in asked if item[1].update is Update.HOST_STAGE]
    others = [item for item in asked if item[1].update is not Update.HOST_STAGE]
    buffers: list[PlannedBuffer] = []
    end = staged_nbytes = 0
    for provider, request in [*staged, *others]:
        offset = end
        end = -(-(offset + request.nbytes) // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        if request.update is Update.HOST_STAGE:
            staged_nbytes = end
        buffers.append(
            PlannedBuffer(
                name=request.name,
                provider=provider,
                role=request.role,
                shape=request.shape,
                dtype=request.dtype,
                nbytes=request.nbytes,
                offset=offset,
                fill=request.fill,
                baked=request.baked,
                update=request.update,
            )
        )
    return tuple(buffers), end, staged_nbytes


def _kv_cost(
    dims: Dims, buffers: Sequence[PlannedBuffer], block_nbytes: int, memory_gib: float | None
) -> KvCost:
    element = dims.kv_dtype.nbytes
    per_token = 0.0
    for layer_type in (LayerType.CSA, LayerType.HCA):
        channels = dims.head_dim + (dims.index_head_dim if layer_type is LayerType.CSA else 0)
        per_token += dims.count(layer_type) * channels * element / dims.ratio(layer_type)
    per_request = len(dims.layer_types) * dims.window_ring_rows * dims.head_dim * element
    for buffer in buffers:
        if buffer.provider in ("compressor_state", "page_table") and buffer.shape[0].unit in (
            "layers",
            "slots",
        ):
            per_request += buffer.nbytes // dims.request_slots
    page_nbytes = round(per_token * dims.page_tokens)
    full = per_request + dims.pages_per_request * page_nbytes
    fit = None
    if memory_gib is not None:
        rest = block_nbytes - dims.max_requests * per_request - dims.kv_pages * page_nbytes
        fit = max(int((memory_gib * GIB - rest) // full), 0)
    return KvCost(
        nbytes_per_token=per_token,
        nbytes_per_request=per_request,
        nbytes_per_full_request=full,
        requests_that_fit=fit,
    )


def _notes(config: Config, speculation: Gate) -> tuple[str, ...]:
    notes = []
    if config.speculative.kind != "off" and not speculation.enabled:
        notes.append(
            f"speculation is off although speculative={config.speculative.kind}: {speculation.reason}"
        )
    if config.device.memory_gib is None:
        notes.append("set device.memory_gib to learn how many requests fit")
    return tuple(notes)


def _check_memory(config: Config, result: Plan) -> None:
    memory_gib = config.device.memory_gib
    if memory_gib is not None and result.block_nbytes > memory_gib * GIB:
        raise ConfigError(
            [
                f"the buffers take {result.block_nbytes / GIB:.2f} GiB but device.memory_gib={memory_gib}; "
                f"{result.kv.requests_that_fit} requests of pipeline.context_length="
                f"{config.pipeline.context_length} fit: lower pipeline.max_requests, pipeline.context_length or "
                "pipeline.kv_pool_tokens"
            ]
        )


__all__ = ["KvCost", "Plan", "PlannedBuffer", "plan"]
