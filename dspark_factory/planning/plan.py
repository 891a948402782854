"""The plan: gates with reasons, every buffer with its bytes and place, graph keys, KV cost. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dspark_factory.api import BackendPlugin, BufferRequest, BufferSpec, Gate, Role
from dspark_factory.config.model_shape import resolve_model
from dspark_factory.config.schema import Config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.asking import ask
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import GraphKey, captured_keys
from dspark_factory.planning.graph_memory import graph_nbytes_estimate
from dspark_factory.planning.kv_cost import GIB, KvCost, kv_cost
from dspark_factory.planning.layout import PlannedBuffer, lay_out
from dspark_factory.planning.needed import missing_providers
from dspark_factory.planning.ordering import in_dependency_order
from dspark_factory.planning.resolve import resolve_dims, speculation_gate
from dspark_factory.registry import backend_plugins, buffer_plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything known before any memory is touched.

    Attributes:
        dims: the resolved geometry.
        gates: feature or provider → on or off, with the reason.
        buffers: in layout order; those staged by the host first, then those read by it, so that one copy covers each.
        providers: names of the providers that are on, in dependency order.
        backend: registered name of the attention backend.
        kv_store: registered name of the provider that keeps its KV rows.
        graph_keys: graphs to capture, largest first.
        graph_nbytes_estimate: memory that they will hold between replays, besides the buffers.
        nbytes: sum over buffers.
        block_nbytes: size of the one device allocation, alignment included.
        staged_nbytes: leading part of the block that is staged on the host and copied at once.
        read_nbytes: the part after it that the host reads after a step, copied at once too.
        kv: cost of requests.
        notes: what a user should know, one line each.
    """

    dims: Dims
    gates: dict[str, Gate]
    buffers: tuple[PlannedBuffer, ...]
    providers: tuple[str, ...]
    backend: str
    kv_store: str
    graph_keys: tuple[GraphKey, ...]
    graph_nbytes_estimate: int
    nbytes: int
    block_nbytes: int
    staged_nbytes: int
    read_nbytes: int
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
    specs = _with_kv_store(config, backend_plugin)
    order = in_dependency_order({name: buffer_plugins[name] for name in specs})
    answers = ask(order, specs, backend_plugin, config.backend, dims)
    gates, asked = answers.gates, answers.requests
    reasons = [*answers.reasons, *_name_clashes(asked)]
    reasons = reasons or missing_providers(gates, dims, backend_plugin.kv) or _long_pools(dims)
    if reasons:
        raise ConfigError(reasons)
    layout, keys = lay_out(asked), captured_keys(dims)
    on = tuple(plugin for plugin in order if gates[plugin.name].enabled)
    result = Plan(
        dims=dims,
        gates={"speculation": speculation, **gates},
        buffers=layout.buffers,
        providers=tuple(plugin.name for plugin in on),
        backend=backend_plugin.name,
        graph_keys=keys,
        graph_nbytes_estimate=graph_nbytes_estimate(dims, keys),
        kv_store=backend_plugin.kv,
        nbytes=sum(buffer.nbytes for buffer in layout.buffers),
        block_nbytes=layout.block_nbytes,
        staged_nbytes=layout.staged_nbytes,
        read_nbytes=layout.read_nbytes,
        kv=kv_cost(dims, on, specs, layout.block_nbytes, config.device.memory_gib),
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


def _with_kv_store(config: Config, backend: BackendPlugin) -> dict[str, BufferSpec]:
    """The selected providers, and the one that keeps the backend's KV rows."""
    specs = dict(config.buffers)
    if backend.kv not in buffer_plugins:
        raise ConfigError(
            [
                f"backend={backend.name}: it keeps its KV in buffer plugin {backend.kv!r}, which is not installed; "
                "install it, see dspark-plugins list"
            ]
        )
    specs.setdefault(backend.kv, buffer_plugins[backend.kv].spec())
    return specs


def _long_pools(dims: Dims) -> list[str]:
    rows = max(dims.pool_rows(layer_type) for layer_type in dims.layer_types)
    if rows < 2**31:
        return []
    return [
        f"a layer's KV pool has {rows} rows, and key lists count them in 32 bits; lower pipeline.kv_pool_tokens"
    ]


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
