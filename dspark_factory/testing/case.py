"""What is checked: a plugin with one set of options, its configurations, and its rehearsals, made once each."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from dspark_factory.api import BackendPlugin, BackendSpec, BufferPlugin, BufferSpec, Role
from dspark_factory.config.schema import Config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.plan import Plan, plan
from dspark_factory.planning.resolve import resolve_dims
from dspark_factory.registry import buffer_plugins, load_object
from dspark_factory.testing.geometry import FULL, configuration
from dspark_factory.testing.registration import Watch, reader_of, registered
from dspark_factory.testing.rehearsal import Rehearsal, rehearse
from dspark_factory.testing.results import CheckNotRun


@dataclass(kw_only=True, eq=False)
class ProviderCase:
    """A buffer provider with one spec.

    Attributes:
        plugin: its descriptor.
        spec: its options; ``enabled`` is true.
        overrides: Hydra overrides for every configuration, such as what its gate needs.
        companions: plugins that it requires, or that read its buffers.
        grows_with_context: whether its bytes may grow with the context length.
        roles: the role of each buffer that another model than the target reads.
    """

    plugin: BufferPlugin
    spec: BufferSpec
    overrides: tuple[str, ...] = ()
    companions: tuple[BufferPlugin, ...] = ()
    grows_with_context: bool = False
    roles: Mapping[str, Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spec = replace(deepcopy(self.spec), enabled=True)
        if self.plugin.on_demand and not any(self.name in item.reads for item in self.companions):
            self.companions = (*self.companions, reader_of(self.plugin))

    @property
    def name(self) -> str:
        """Registered name."""
        return self.plugin.name

    @property
    def built_in(self) -> bool:
        """Whether every configuration has it anyway."""
        return self.name in configuration((*FULL, *self.overrides)).buffers

    def provider(self) -> Any:
        """A new instance."""
        return load_object(self.plugin.provider)()

    def config(self, base: tuple[str, ...] = FULL, *, enabled: bool = True) -> Config:
        """A configuration with the plugin and its companions."""
        config = configuration((*base, *self.overrides))
        for companion in self.companions:
            config.buffers.setdefault(companion.name, companion.spec())
        config.buffers[self.name] = replace(deepcopy(self.spec), enabled=enabled)
        return config

    def config_without(self, base: tuple[str, ...] = FULL) -> Config:
        """The same without the plugin and whoever depends on it."""
        config = configuration((*base, *self.overrides))
        for companion in self._independent:
            config.buffers.setdefault(companion.name, companion.spec())
        return config

    def plan(self, config: Config) -> Plan:
        """Plan with the plugin known."""
        with registered(self.plugin, *self.companions):
            return plan(config)

    @property
    def _independent(self) -> tuple[BufferPlugin, ...]:
        return tuple(item for item in self.companions if self.name not in (*item.requires, *item.reads))

    @cached_property
    def captured(self) -> Rehearsal:
        """A whole life with the plugin, replaying graphs."""
        return rehearse(self.config(), plugins=self.companions, watch=Watch(self.plugin))

    @cached_property
    def eager(self) -> Rehearsal:
        """Another whole life with the plugin, running the step itself at every replay."""
        return rehearse(self.config(), plugins=self.companions, watch=Watch(self.plugin), eager=True)

    @property
    def baseline(self) -> Rehearsal:
        """A whole life without the plugin; shared by all plugins of a process that have the same surroundings."""
        return _baseline(self.overrides, self._independent)


@lru_cache(maxsize=8)
def _baseline(overrides: tuple[str, ...], companions: tuple[BufferPlugin, ...]) -> Rehearsal:
    config = configuration((*FULL, *overrides))
    for companion in companions:
        config.buffers.setdefault(companion.name, companion.spec())
    return rehearse(config, plugins=companions)


@dataclass(kw_only=True, eq=False)
class BackendCase:
    """An attention backend with one spec.

    Attributes:
        plugin: its descriptor.
        spec: its options.
        overrides: Hydra overrides for every configuration, such as the device it needs.
    """

    plugin: BackendPlugin
    spec: BackendSpec
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Registered name."""
        return self.plugin.name

    def backend(self) -> Any:
        """A new instance."""
        return load_object(self.plugin.backend)()

    def config(self, *more: str) -> Config:
        """A configuration with the backend."""
        config = configuration((*FULL, *self.overrides, *more))
        config.backend = deepcopy(self.spec)
        config.backend.kind = self.name
        return config

    def plan(self, config: Config) -> Plan:
        """Plan on this backend.

        Raises:
            CheckNotRun: it refuses the geometry, or another reason is against it.
        """
        reasons = list(self.backend().reasons(resolve_dims(config)))
        if reasons:
            raise CheckNotRun(f"backend {self.name!r} refuses: {'; '.join(reasons)}")
        with registered(self.plugin):
            try:
                return plan(config)
            except ConfigError as error:
                raise CheckNotRun(f"backend {self.name!r} cannot be planned: {error}") from error

    @cached_property
    def captured(self) -> Rehearsal:
        """A whole life on this backend."""
        self.plan(self.config())
        return rehearse(self.config(), plugins=(self.plugin,))

    @property
    def baseline(self) -> Rehearsal:
        """The same life on the reference backend."""
        return _baseline(self.overrides, ())


def companions_of(plugin: BufferPlugin) -> tuple[BufferPlugin, ...]:
    """Registered plugins that ``plugin`` requires, or that require or read it; built-in ones are there anyway."""
    required = [buffer_plugins[name] for name in plugin.requires if name in buffer_plugins]
    readers = [
        other
        for other in buffer_plugins.values()
        if plugin.name in (*other.requires, *other.reads) and other.name != plugin.name
    ]
    return (*required, *readers)
