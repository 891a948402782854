"""What Hydra is told before it composes: schemas, plugins' options and folders, the one resolver."""

from __future__ import annotations

from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from dspark_factory.config import schema
from dspark_factory.config.launcher import ProcessLauncherSpec
from dspark_factory.config.model_shape import checkpoint_folder, read_shape
from dspark_factory.config.paths import anchored_checkpoint
from dspark_factory.errors import ConfigError
from dspark_factory.registry import backend_plugins, buffer_plugins, origin_of
from dspark_factory.registry.config_files import GROUP, brings_option

DEFAULT_NUM_DRAFT_TOKENS = 6


class PluginSearchPath(SearchPathPlugin):
    """Adds every plugin's configuration package to Hydra's search path, behind our own.

    Plugins are found by their entry points and not by Hydra's scan of ``hydra_plugins``, which some editable
    installs hide.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Called by Hydra whenever it starts, in worker processes too."""
        for plugin in [*buffer_plugins.values(), *backend_plugins.values()]:
            path = f"pkg://{plugin.config_package}"
            if plugin.config_package and all(item.path != path for item in search_path.get_path()):
                search_path.append(provider=f"dspark-{plugin.name}", path=path)


def register_schemas() -> None:
    """Make every dataclass, every plugin and the one resolver known to Hydra; safe to call again."""
    store = ConfigStore.instance()
    store.store(name="schema", node=schema.Config)
    for group, node in {
        "model": schema.ModelSpec,
        "pipeline": schema.PipelineSpec,
        "device": schema.DeviceSpec,
        "workload": schema.WorkloadSpec,
    }.items():
        store.store(group=f"schema/{group}", name=group, node=node)
    for group, nodes in {"task": schema.TASKS, "speculative": schema.SPECULATIVE}.items():
        for name, node in nodes.items():
            store.store(group=f"schema/{group}", name=name, node=node)
    store.store(group="hydra/launcher", name="process", node=ProcessLauncherSpec, provider="dspark_factory")
    _register_plugins(store)
    OmegaConf.register_new_resolver("dspark.num_draft_tokens", _num_draft_tokens, replace=True)


def _register_plugins(store: ConfigStore) -> None:
    Plugins.instance().register(PluginSearchPath)
    for plugin in [*buffer_plugins.values(), *backend_plugins.values()]:
        group, name = GROUP[plugin.kind], plugin.name
        store.store(group=f"schema/{group}", name=name, node=plugin.spec)
        # Built-in providers are chosen together, by buffers/default.yaml.
        if not origin_of(plugin).builtin and not brings_option(plugin):
            package = f"buffers.{name}" if group == "buffers" else group
            store.store(group=group, name=name, node=plugin.spec, package=package)


def _num_draft_tokens(block_size: int | None, trained_block_size: int | None, *, _root_: Any) -> int:
    """Default verify width: a schedule's largest, else the block size with the anchor, else the drafter's, else six."""
    schedule = OmegaConf.select(_root_, "speculative.schedule", throw_on_missing=False)
    scheduled = [pair[1] for pair in schedule or () if len(pair) == 2 and isinstance(pair[1], int)]
    if scheduled and block_size is None:
        return max(scheduled)
    drafts = block_size if block_size is not None else trained_block_size
    if drafts is None:
        drafts = _checkpoint_block_size(_root_)
    return DEFAULT_NUM_DRAFT_TOKENS if drafts is None else drafts + 1


def _checkpoint_block_size(root: Any) -> int | None:
    """Trained block size that the model's checkpoint states; a rule reports an unreadable checkpoint."""
    name = OmegaConf.select(root, "model.checkpoint", throw_on_missing=False)
    if not isinstance(name, str):
        return None
    try:
        drafter = read_shape(checkpoint_folder(anchored_checkpoint(name)), shown=name).get("dspark")
    except ConfigError:
        return None
    return None if drafter is None else drafter.block_size
