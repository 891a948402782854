"""Writes a new plugin distribution from the templates, complete and working."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template

from dspark_factory.errors import PluginError
from dspark_factory.registry import backend_plugins, buffer_plugins, plugin_failures
from dspark_factory.registry.validation import bad_name

SUFFIX = ".tmpl"
"""Ending of template files, so that no tool takes one for Python or a configuration."""

WHAT = {"buffers": "A buffer provider", "backends": "An attention backend"}


def write_distribution(name: str, kind: str, into: Path) -> Path:
    """Write ``dspark-<name>`` below ``into``; returns its folder.

    Args:
        name: of the plugin, snake_case.
        kind: ``buffers`` or ``backends``.
        into: folder that gets the new one; made where it is missing.

    Raises:
        PluginError: the name is bad or taken, or the folder exists or cannot be written.
    """
    reason = bad_name(name) or _taken(name)
    if reason is not None:
        raise PluginError(reason)
    words = _words(name, kind)
    folder = into / words["distribution"]
    if folder.exists():
        raise PluginError(f"{folder} exists already; remove it or choose another folder with --into")
    try:
        for path, text in _rendered(kind, words):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PluginError(f"{folder} cannot be written: {error}") from error
    return folder


def _words(name: str, kind: str) -> dict[str, str]:
    return {
        "name": name,
        "kind": kind,
        "what": WHAT[kind],
        "package": f"dspark_{name}",
        "distribution": f"dspark-{name.replace('_', '-')}",
        "class_name": "".join(part.capitalize() for part in name.split("_")),
    }


def _taken(name: str) -> str | None:
    """Why nothing new may have this name: a plugin, a group, a choice or a package has it."""
    plugins = [key for known in (buffer_plugins, backend_plugins) for key in known]
    failed = [failure.name for failure in plugin_failures()]
    if name in [*plugins, *failed]:
        return f"{name!r} is taken by an installed plugin; see dspark-plugins list, and choose another name"
    groups = {item.name for item in files("dspark_factory.conf").iterdir() if item.is_dir()}
    if name in {*groups, "default", "schema", "hydra", "output"}:
        return f"{name!r} is taken by the configuration; choose another name"
    if find_spec(f"dspark_{name}") is not None:
        return f"the package dspark_{name} exists already; choose another name"
    return None


def _rendered(kind: str, words: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Path inside the distribution, and text, of every file."""
    root = files("dspark_factory") / "templates"
    for part in ("common", kind):
        for path, template in _templates(root / part, ""):
            place = (
                path.removesuffix(SUFFIX).replace("PACKAGE", words["package"]).replace("NAME", words["name"])
            )
            yield place, Template(template.read_text(encoding="utf-8")).substitute(words)


def _templates(folder: Traversable, start: str) -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if item.is_dir():
            yield from _templates(item, f"{start}{item.name}/")
        elif item.name.endswith(SUFFIX):
            yield f"{start}{item.name}", item
