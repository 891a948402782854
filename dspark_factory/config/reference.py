"""The page of all options, generated from the schema: ``python -m dspark_factory.config.reference``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from enum import Enum
from typing import Any

from dspark_factory.api import BackendPlugin, BackendSpec, BufferPlugin, BufferSpec
from dspark_factory.config import schema
from dspark_factory.registry import backend_plugins, buffer_plugins

HEADER = """# Configuration

Every option, generated from the schema. Choose a file of a group with `group=name`, set an option with
`group.option=value`; `dspark --cfg job` shows the values of what you compose.
"""


def reference() -> str:
    """Markdown of every group, its choices and their options."""
    parts = [HEADER]
    parts += _group("task", schema.TASKS, schema.TaskSpec)
    parts += _group("model", {"": schema.ModelSpec}, None)
    parts += _group("model.dspark", {"": schema.DsparkShape}, None)
    parts += _group("speculative", schema.SPECULATIVE, schema.SpeculativeSpec)
    parts += _group("backend", _specs(backend_plugins), BackendSpec)
    parts += _group("buffers", _specs(buffer_plugins), BufferSpec)
    for name, node in (
        ("pipeline", schema.PipelineSpec),
        ("device", schema.DeviceSpec),
        ("workload", schema.WorkloadSpec),
    ):
        parts += _group(name, {"": node}, None)
    return "\n".join(parts) + "\n"


def _specs(plugins: Mapping[str, BackendPlugin | BufferPlugin]) -> dict[str, type]:
    """Options of the built-in plugins; those of others are documented by others."""
    own = schema.__name__.partition(".")[0]
    return {
        name: plugin.spec for name, plugin in plugins.items() if plugin.spec.__module__.startswith(f"{own}.")
    }


def _group(name: str, nodes: Mapping[str, type], base: type | None) -> Iterator[str]:
    """A section: options of the base first, then what each choice adds."""
    yield f"\n## {name}\n"
    if base is not None:
        yield f"{_sentence(base)}\n"
        yield from _table(name, base, skip=())
    for choice, node in nodes.items():
        if choice and node is base:
            continue
        inherited = tuple(item.name for item in fields(base)) if base is not None else ()
        if choice:
            yield f"\n### {name}={choice}\n" if name != "buffers" else f"\n### buffers.{choice}\n"
        yield f"{_sentence(node)}\n"
        yield from _table(f"{name}.{choice}" if name == "buffers" else name, node, skip=inherited)


def _table(path: str, node: type, *, skip: tuple[str, ...]) -> Iterator[str]:
    shown = [item for item in fields(node) if item.name not in skip and item.name != "kind"]
    if not shown:
        return
    texts = _attribute_texts(node)
    yield "| option | type | default | meaning |\n|---|---|---|---|"
    for item in shown:
        kind = str(item.type).replace("|", "or")
        yield f"| `{path}.{item.name}` | {kind} | {_default(item)} | {texts.get(item.name, '')} |"


def _default(item: Field[Any]) -> str:
    value = item.default_factory() if item.default_factory is not MISSING else item.default
    if value is MISSING or value == "???":
        return "required"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    return "null" if value is None else f"`{value}`"


def _sentence(node: type) -> str:
    return " ".join((inspect.getdoc(node) or "").split())


def _attribute_texts(node: type) -> dict[str, str]:
    """Strings that follow an attribute in the class body, of the class and its bases."""
    texts: dict[str, str] = {}
    for owner in reversed(node.__mro__[:-1]):
        body = ast.parse(inspect.getsource(owner)).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, following in zip(body.body, body.body[1:], strict=False):
            if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
                continue
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                texts[statement.target.id] = " ".join(str(following.value.value).split())
    return texts


if __name__ == "__main__":
    print(reference(), end="")
