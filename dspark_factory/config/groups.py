"""Hydra's configuration groups, as the running composition sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

from dspark_factory.registry import backend_plugins, buffer_plugins

_NOT_OURS = ("hydra", "schema")
_PLUGINS = {"buffers": buffer_plugins, "backend": backend_plugins}


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that a user chooses from. Outside a composition there are none.

    Attributes:
        config_name: primary configuration that may extend the search path; ours does not.
        overrides: overrides of the search path.
    """

    config_name: str | None = None
    overrides: tuple[str, ...] = ()

    @staticmethod
    def seen_with(overrides: Sequence[str], config_name: str | None = None) -> Groups:
        """The groups that a composition with these overrides sees."""
        return Groups(config_name, tuple(line for line in overrides if line.startswith("hydra.searchpath=")))

    def names(self) -> list[str]:
        """Every group, sub-groups included."""
        found: list[str] = []
        pending = [name for name in self._listed("", ObjectType.GROUP) if name not in _NOT_OURS]
        while pending:
            group = pending.pop(0)
            found.append(group)
            pending += [f"{group}/{name}" for name in self._listed(group, ObjectType.GROUP)]
        return found

    def options(self, group: str) -> list[str]:
        """Names of the files of a group."""
        return self._listed(group, ObjectType.CONFIG)

    def options_text(self, group: str) -> str:
        """The options as a list for a message."""
        return ", ".join(self.options(group)) or "none"

    def unknown_option(self, group: str, option: str) -> str:
        """Reason for an option that the group does not have."""
        plugins = _PLUGINS.get(group)
        failure = plugins.failure(option) if plugins is not None else None
        if failure is not None:
            return f"{group}={option}: {failure}"
        nearest = get_close_matches(option, self.options(group), n=1, cutoff=0.5)
        proposal = f"did you mean {nearest[0]}? Options" if nearest else "options"
        return f"{group}={option}: {group} has no {option!r}; {proposal}: {self.options_text(group)}"

    def _listed(self, group: str, kind: ObjectType) -> list[str]:
        if not GlobalHydra.instance().is_initialized():
            return []
        loader = GlobalHydra.instance().config_loader()
        return sorted(loader.get_group_options(group, kind, self.config_name, list(self.overrides)))
