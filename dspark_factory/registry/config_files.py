"""The Hydra files that plugins bring, and clashes between them: Hydra takes the first file without a word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from dspark_factory.api import BackendPlugin, BufferPlugin

OWN_PACKAGE = "dspark_factory.conf"
GROUP = {"buffers": "buffers", "backends": "backend"}
"""Kind of plugin → the group in which it is selected."""


def config_files(package: str) -> tuple[str, ...]:
    """YAML files of a configuration package, as paths below it, sorted."""
    return tuple(sorted(_walk(files(package), "")))


def config_groups(plugin: BufferPlugin | BackendPlugin) -> tuple[str, ...]:
    """Groups in which a plugin has options to choose from."""
    own = config_files(plugin.config_package) if plugin.config_package else ()
    named = {path.rpartition("/")[0] for path in (*own, option_file(plugin))}
    return tuple(sorted(named - {""}))


def option_file(plugin: BufferPlugin | BackendPlugin) -> str:
    """The file that selects a plugin, as ``buffers=[…,name]`` or ``backend=name``."""
    return f"{GROUP[plugin.kind]}/{plugin.name}.yaml"


def brings_option(plugin: BufferPlugin | BackendPlugin) -> bool:
    """Whether a plugin brings the file that selects it; otherwise its schema is what is selected."""
    return plugin.config_package is not None and option_file(plugin) in config_files(plugin.config_package)


def clashing_files(plugins: Sequence[BufferPlugin | BackendPlugin]) -> dict[tuple[str, str], str]:
    """(kind, name) → reason, for each third-party plugin with a file that another package has too."""
    if not plugins:
        return {}
    owners: dict[str, set[str]] = {path: {OWN_PACKAGE} for path in config_files(OWN_PACKAGE)}
    for plugin in plugins:
        for path in _brought(plugin):
            owners.setdefault(path, set()).add(plugin.config_package or plugin.name)
    clashes: dict[tuple[str, str], str] = {}
    for plugin in plugins:
        own = plugin.config_package or plugin.name
        for path in _brought(plugin):
            others = sorted(owners[path] - {own})
            if others:
                clashes[plugin.kind, plugin.name] = (
                    f"its configuration file {path} exists in {', '.join(others)} too; rename it"
                )
    return clashes


def _brought(plugin: BufferPlugin | BackendPlugin) -> set[str]:
    own = config_files(plugin.config_package) if plugin.config_package else ()
    return {option_file(plugin), *own}


def _walk(folder: Traversable, start: str) -> Iterator[str]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _walk(item, f"{start}{item.name}/")
        elif item.name.endswith((".yaml", ".yml")):
            yield f"{start}{item.name}"
