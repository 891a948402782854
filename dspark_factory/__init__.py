"""DSpark Factory: attention backends, buffers and capture pipelines for DeepSeek-V4 speculative decoding.

The public names below are imported when first used, so that ``import dspark_factory`` costs nothing and only
:func:`build` needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dspark_factory.config.load import load_config
    from dspark_factory.config.schema import Config
    from dspark_factory.errors import (
        AddressChanged,
        AllocationAfterSeal,
        BatchError,
        CapacityError,
        CaptureError,
        CheckpointError,
        ConfigError,
        DsparkError,
        FeatureDisabled,
        NoBucket,
        PluginError,
        StageOrderError,
        TaskError,
    )
    from dspark_factory.factory import Assembly, build
    from dspark_factory.planning.plan import Plan, plan
    from dspark_factory.registry import register_backend_plugin, register_buffer_plugin

__all__ = [
    "AddressChanged",
    "AllocationAfterSeal",
    "Assembly",
    "BatchError",
    "CapacityError",
    "CaptureError",
    "CheckpointError",
    "Config",
    "ConfigError",
    "DsparkError",
    "FeatureDisabled",
    "NoBucket",
    "Plan",
    "PluginError",
    "StageOrderError",
    "TaskError",
    "build",
    "load_config",
    "plan",
    "register_backend_plugin",
    "register_buffer_plugin",
]

_HOME = {
    "load_config": "dspark_factory.config.load",
    "Config": "dspark_factory.config.schema",
    "Plan": "dspark_factory.planning.plan",
    "plan": "dspark_factory.planning.plan",
    "Assembly": "dspark_factory.factory",
    "build": "dspark_factory.factory",
    "register_buffer_plugin": "dspark_factory.registry",
    "register_backend_plugin": "dspark_factory.registry",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME.get(name, "dspark_factory.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
