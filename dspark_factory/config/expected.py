"""What an option takes, in words, from its type and bounds in the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

DRAFT_TOKENS_EXPECTED = "null to switch speculation off, or an integer of at least 2"

_SPECIAL = {"speculative.num_draft_tokens": DRAFT_TOKENS_EXPECTED}
_SINGULAR = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
_PLURAL = {bool: "true and false", int: "integers", float: "numbers", str: "texts"}
_EXAMPLE = {bool: "[true]", int: "[1,2,4]", float: "[0.5,0.75]", str: "[one,two]"}


@cache
def hints(schema: type) -> Mapping[str, Any]:
    """Option → type of a schema dataclass, inherited ones included."""
    return get_type_hints(schema)


@cache
def schema_fields(schema: Any) -> Mapping[str, Field[Any]]:
    """Option → field of a schema dataclass, inherited ones included."""
    return {item.name: item for item in fields(schema)}


def is_schema(kind: Any) -> bool:
    """Whether this is a schema dataclass, and not a plain mapping."""
    return isinstance(kind, type) and is_dataclass(kind)


def unwrapped(hint: Any) -> tuple[Any, bool]:
    """The type without ``None``, and whether null is allowed."""
    if get_origin(hint) in (Union, UnionType):
        members = [item for item in get_args(hint) if item is not NoneType]
        return members[0] if len(members) == 1 else hint, NoneType in get_args(hint)
    return hint, False


def element(hint: Any) -> Any:
    """Type of the elements of a list or mapping; ``None`` where it is neither."""
    inner, _ = unwrapped(hint)
    return get_args(inner)[-1] if get_origin(inner) in (list, tuple, dict) else None


def expected(path: str, hint: Any, metadata: Mapping[str, Any]) -> str:
    """What may be written for the option at ``path``: ``an integer of at least 1, or null``."""
    if path in _SPECIAL:
        return _SPECIAL[path]
    inner, optional = unwrapped(hint)
    return _words(inner) + _bound(metadata) + (", or null" if optional else "")


def _bound(metadata: Mapping[str, Any]) -> str:
    if "low" in metadata:
        return f" of at least {metadata['low']}"
    if "above" in metadata:
        return f" above {metadata['above']}"
    return ""


def _words(kind: Any) -> str:
    if kind in _SINGULAR:
        return _SINGULAR[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(item.name for item in kind)}"
    if get_origin(kind) is list:
        return _list_words(get_args(kind)[0])
    if get_origin(kind) is dict:
        return "a mapping, as in {name: value}"
    if is_schema(kind):
        return f"a mapping with {', '.join(schema_fields(kind))}"
    return f"a value of type {getattr(kind, '__name__', kind)}"


def _list_words(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        names = [item.name for item in kind]
        return f"a list, as in [{names[0]}], out of {', '.join(names)}"
    return f"a list of {_PLURAL.get(kind, 'values')}, as in {_EXAMPLE.get(kind, '[…]')}"
