"""Compose a configuration, or say everything that is wrong with it at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, cast

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dspark_factory.config import schema
from dspark_factory.config.explain import explain
from dspark_factory.config.rules import check
from dspark_factory.errors import ConfigError
from dspark_factory.registry import backend_plugins, buffer_plugins

logger = logging.getLogger(__name__)

CONFIG_MODULE = "dspark_factory.conf"
DEFAULT_NUM_DRAFT_TOKENS = 6


def register_schemas() -> None:
    """Make every dataclass known to Hydra, and the one resolver; safe to call again."""
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
    for name, plugin in backend_plugins.items():
        store.store(group="schema/backend", name=name, node=plugin.spec)
    for name, plugin in buffer_plugins.items():
        store.store(group="schema/buffers", name=name, node=plugin.spec)
    OmegaConf.register_new_resolver("dspark.num_draft_tokens", _num_draft_tokens, replace=True)


def _num_draft_tokens(block_size: int | None, trained_block_size: int | None) -> int:
    """Default verify width: the given block size and the anchor, else the drafter's own, else six."""
    drafts = block_size if block_size is not None else trained_block_size
    return DEFAULT_NUM_DRAFT_TOKENS if drafts is None else drafts + 1


def load_config(overrides: Sequence[str] = ()) -> schema.Config:
    """Compose the configuration from Hydra overrides, as the command line does.

    Raises:
        ConfigError: with every reason, one line each.
    """
    register_schemas()
    with _hydra():
        try:
            composed = compose("config", overrides=list(overrides))
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(explain_all(list(overrides), error)) from error
    return to_config(composed)


def to_config(composed: DictConfig) -> schema.Config:
    """Plain dataclasses from a composed configuration, checked; warnings are logged.

    Raises:
        ConfigError: with every reason.
    """
    missing = sorted(
        key for key in OmegaConf.missing_keys(composed) if not key.startswith("hydra")
    )
    if missing:
        raise ConfigError([f"{key} has no value; set {key}=…" for key in missing])
    try:
        config = cast(schema.Config, OmegaConf.to_object(composed))
    except OmegaConfBaseException as error:
        raise ConfigError([_one_line(error)]) from error
    reasons, warnings = check(config)
    if reasons:
        raise ConfigError(reasons)
    for warning in warnings:
        logger.warning(warning)
    return config


def explain_all(overrides: list[str], error: Exception) -> list[str]:
    """Reasons for a failed composition: each override is tried alone, and the rules run on what composes."""
    register_schemas()
    reasons: list[str] = []
    usable: list[str] = []
    groups = [item for item in overrides if _is_group(item)]
    with _hydra():
        for override in overrides:
            context = [group for group in groups if group != override]
            reason = _reason(override, [*context, override]) or None
            if reason is None:
                usable.append(override)
            elif _reason(override, [override]) is not None:
                reasons.append(reason)
            else:
                usable.append(override)
        if not reasons:
            return [_one_line(error)]
        try:
            reasons += _rule_reasons(compose("config", overrides=usable))
        except (HydraException, OmegaConfBaseException):
            logger.debug("the remaining overrides do not compose on their own", exc_info=True)
    return reasons


def _rule_reasons(composed: DictConfig) -> list[str]:
    try:
        to_config(composed)
    except ConfigError as error:
        return list(error.reasons)
    return []


def _reason(override: str, overrides: list[str]) -> str | None:
    try:
        composed = compose("config", overrides=overrides)
        OmegaConf.to_container(composed, resolve=True, throw_on_missing=False)
    except (HydraException, OmegaConfBaseException) as error:
        return explain(override, error)
    return None


def _is_group(override: str) -> bool:
    return re.match(r"^[+~]*[a-z_/]+=", override) is not None


def _one_line(error: Exception) -> str:
    text = str(error.__cause__ or error) if isinstance(error, HydraException) else str(error)
    return re.sub(r"\s*\n\s*", " ", text).strip()


@contextmanager
def _hydra() -> Any:
    """Hydra's compose API, re-entrant: an enclosing application's state comes back afterwards."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().clear()
        if before is not None:
            GlobalHydra.instance().initialize(before)
