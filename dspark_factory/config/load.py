"""Compose a configuration, or say everything that is wrong with it at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from dspark_factory.config import schema
from dspark_factory.config.composed import Problem, first_line, problems
from dspark_factory.config.explain import explain
from dspark_factory.config.extras import missing_extra
from dspark_factory.config.paths import anchor_paths
from dspark_factory.config.prompt_override import quote_prompts
from dspark_factory.config.rules import check
from dspark_factory.config.store import register_schemas
from dspark_factory.errors import ConfigError

logger = logging.getLogger(__name__)

CONFIG_MODULE = "dspark_factory.conf"
CONFIG_NAME = "config"

_TO_COME = "(missing)"
"""Stands in for a missing text while the rules run; what they say about it is dropped."""


def load_config(overrides: Sequence[str] = ()) -> schema.Config:
    """Compose the configuration from Hydra overrides, as the command line does.

    Raises:
        ConfigError: with every reason, one line each.
    """
    register_schemas()
    overrides = quote_prompts(overrides)
    with hydra_session():
        try:
            composed = compose(CONFIG_NAME, overrides=list(overrides))
        except Exception as error:
            # Hydra and OmegaConf raise ValueError, AssertionError and AttributeError too for bad overrides.
            raise ConfigError(_refusals(list(overrides), error, sweeping=False)) from error
        return to_config(composed)


def to_config(composed: DictConfig) -> schema.Config:
    """Plain dataclasses from a composed configuration, checked; warnings are logged.

    Args:
        composed: what Hydra composed, without its own ``hydra`` node.

    Raises:
        ConfigError: with every reason.
    """
    config, reasons, warnings = _checked(composed)
    if config is None or reasons:
        raise ConfigError(reasons)
    for warning in warnings:
        logger.warning(warning)
    return config


def explain_all(
    overrides: Sequence[str],
    error: Exception,
    *,
    sweeping: bool = False,
    config_name: str = CONFIG_NAME,
    config_folder: str | None = None,
) -> list[str]:
    """Every reason why these overrides did not compose; never empty.

    Args:
        overrides: as given on the command line.
        error: what Hydra raised for them.
        sweeping: whether they describe a multirun.
        config_name: primary configuration.
        config_folder: additional folder of configurations (``--config-dir``).
    """
    register_schemas()
    lines = list(overrides)
    if config_folder is not None:
        lines.insert(0, f"hydra.searchpath=[file://{os.path.abspath(config_folder)}]")
    with hydra_session():
        return _refusals(lines, error, sweeping=sweeping, config_name=config_name)


def _refusals(
    overrides: list[str], error: Exception, *, sweeping: bool, config_name: str = CONFIG_NAME
) -> list[str]:
    def composition(lines: list[str]) -> DictConfig:
        return compose(config_name, overrides=lines)

    logger.debug("the configuration does not compose", exc_info=error)
    lacking = missing_extra(error, overrides)
    if lacking is not None:
        return [lacking]  # without the package, its own options would be refused too
    other_name = None if config_name == CONFIG_NAME else config_name
    explained = explain(overrides, composition, sweeping=sweeping, config_name=other_name)
    reasons = list(explained.reasons)
    if explained.composed is not None:
        reasons += [reason for reason in _checked(explained.composed)[1] if reason not in reasons]
    return reasons or [first_line(error)]


def _checked(composed: DictConfig) -> tuple[schema.Config | None, list[str], list[str]]:
    """The dataclasses, the reasons against them and the warnings about them."""
    found = problems(composed)
    reasons = [item.reason for item in found]
    config = _objects(composed, found, reasons)
    if config is None:
        return None, reasons, []
    anchor_paths(config)
    refused, warnings = check(config)
    return config, [*reasons, *(reason for reason in refused if _TO_COME not in reason)], warnings


def _objects(composed: DictConfig, found: list[Problem], reasons: list[str]) -> schema.Config | None:
    """The dataclasses, as far as they can be made, so that the rules can add their reasons."""
    if any(item.kind == "mistyped" for item in found):
        return None
    try:
        for item in found:
            if item.kind == "missing":
                OmegaConf.update(composed, item.key, _TO_COME)
        return cast(schema.Config, OmegaConf.to_object(composed))
    except Exception as error:
        # A plugin's dataclass may refuse its values with any exception.
        logger.debug("no dataclasses can be made of the configuration", exc_info=True)
        if not reasons:
            reasons.append(first_line(error))
        return None


@contextmanager
def hydra_session() -> Iterator[None]:
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
