"""A generic registry: names to descriptors, duplicates refused, unknown names explained."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from dspark_factory.errors import PluginError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Descriptors by name, in order of registration; filled by ``fill`` when first looked at.

    Raises:
        PluginError: a name is registered twice, or an unknown one is asked for.
    """

    def __init__(self, what: str, fill: Callable[[], None] | None = None) -> None:
        self.what = what
        self._fill = fill
        self._items: dict[str, T] = {}

    @property
    def _known(self) -> dict[str, T]:
        if self._fill is not None:
            self._fill()
        return self._items

    def register(self, name: str, item: T) -> None:
        """Add ``item`` under a new name."""
        if name in self._items:
            raise PluginError(f"{self.what} {name!r} is registered twice")
        self._items[name] = item

    def unregister(self, name: str) -> None:
        """Remove a name; unknown names are refused as in look-up."""
        del self._known[self.require(name)]

    def require(self, name: str) -> str:
        """The name itself if registered, else an error with the nearest one."""
        if name not in self._known:
            raise PluginError(self.unknown(name))
        return name

    def unknown(self, name: str) -> str:
        """One line that says why there is no such name."""
        return unknown_name(self.what, name, self._known)

    def __getitem__(self, name: str) -> T:
        return self._known[self.require(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known


def unknown_name(what: str, name: str, known: Mapping[str, Any] | list[str]) -> str:
    """One line that says ``name`` is unknown, proposes the nearest and lists the rest."""
    nearest = get_close_matches(name, list(known), n=1, cutoff=0.6)
    proposal = f" did you mean {nearest[0]!r}?" if nearest else ""
    return f"{what} {name!r} is unknown;{proposal} known: {', '.join(sorted(known)) or 'none'}"


def load_object(path: str) -> Any:
    """Import ``"package.module:Name"``.

    Raises:
        PluginError: the module or the name does not exist.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PluginError(f"cannot load {path!r}: {error}") from error
