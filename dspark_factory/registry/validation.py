"""Why a plugin's descriptor cannot be used."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dspark_factory.api import API_VERSION, BackendPlugin, BackendSpec, BufferPlugin, BufferSpec

DESCRIPTORS: dict[str, type] = {"buffers": BufferPlugin, "backends": BackendPlugin}
SPECS: dict[str, type] = {"buffers": BufferSpec, "backends": BackendSpec}


def unusable(plugin: Any, kind: str, name: str, *, trusted: bool = False) -> str | None:
    """The first reason against a descriptor, or ``None``.

    Args:
        plugin: what the entry point yields.
        kind: kind of its entry-point group.
        name: name of its entry point.
        trusted: skip what only costs time for the built-in plugins, which the tests cover.
    """
    wanted = DESCRIPTORS[kind]
    if not isinstance(plugin, wanted):
        return f"it yields {_shown(plugin)}, not a {wanted.__name__}"
    checks: tuple[Callable[[Any, str, str], str | None], ...] = (_version, _name)
    if not trusted:
        checks += (_spec, _code, _config_package)
    return next((reason for check in checks if (reason := check(plugin, kind, name))), None)


def bad_name(name: str) -> str | None:
    """Why this is no name for a plugin: it becomes a file, a configuration key and part of a package."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        return (
            f"{name!r} is not snake_case; write lower-case words joined by underscores, as in accept_history"
        )
    if keyword.iskeyword(name) or name in ("true", "false", "null"):
        return f"{name!r} is a word of Python or YAML; take another name"
    return None


def _version(plugin: Any, kind: str, name: str) -> str | None:
    if plugin.api_version == API_VERSION:
        return None
    return (
        f"it was made for contract version {plugin.api_version}, this is {API_VERSION}; "
        "install a matching version of the plugin"
    )


def _name(plugin: Any, kind: str, name: str) -> str | None:
    if plugin.name != name:
        return f"its entry point is called {name!r} but its descriptor {plugin.name!r}; make them equal"
    return bad_name(name)


def _spec(plugin: Any, kind: str, name: str) -> str | None:
    spec, base = plugin.spec, SPECS[kind]
    if not (isinstance(spec, type) and issubclass(spec, base)):
        return f"its spec {_shown(spec)} is not a subclass of {base.__name__}"
    if spec is not base and "__dataclass_fields__" not in vars(spec):
        return f"its spec {spec.__name__} is not a dataclass; decorate it with @dataclass(kw_only=True)"
    assert is_dataclass(spec)
    if spec.__dataclass_params__.frozen:  # pyright: ignore[reportAttributeAccessIssue]
        return f"its spec {spec.__name__} is frozen; Hydra merges into it, so leave frozen=True out"
    try:
        OmegaConf.structured(spec)
    except OmegaConfBaseException as error:
        return f"its spec {spec.__name__} cannot be a configuration: {str(error).splitlines()[0]}"
    if kind == "backends":
        default = next(item.default for item in fields(spec) if item.name == "kind")
        if default != name:
            return f"its spec {spec.__name__} has kind={default!r}; the default of kind is the name {name!r}"
    return None


def _code(plugin: Any, kind: str, name: str) -> str | None:
    path = plugin.provider if kind == "buffers" else plugin.backend
    if isinstance(path, str) and re.fullmatch(r"[\w.]+:[\w.]+", path):
        return None
    return f'its code is given as {_shown(path)}; write "package.module:Class"'


def _config_package(plugin: Any, kind: str, name: str) -> str | None:
    package = plugin.config_package
    if package is None:
        return None
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return f"its configuration package {package!r} does not exist; add it to the distribution"
    if found.origin is None:
        return f"its configuration package {package!r} has no __init__.py; add an empty one"
    return None


def _shown(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    return f"{value!r}" if isinstance(value, str | int | None) else f"a {type(value).__name__}"
