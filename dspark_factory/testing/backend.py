"""The conformance suite for attention backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from dspark_factory.api import BackendPlugin, BackendSpec
from dspark_factory.testing import backend_checks as checks
from dspark_factory.testing.case import BackendCase
from dspark_factory.testing.results import run_over

BACKEND_CHECKS: dict[str, Callable[[BackendCase], None]] = {
    check.__name__: check
    for check in (
        checks.light_import,
        checks.reasons_and_requests_pure,
        checks.workspaces_planned_equal_allocated,
        checks.agrees_on_every_layer,
        checks.agrees_on_sinks,
        checks.agrees_on_short_lists,
        checks.agrees_on_empty_rows,
        checks.agrees_in_bfloat16,
        checks.captured_and_replayed,
        checks.tokens_equal_the_reference,
        checks.memory_given_back,
    )
}
"""Every check by name, cheap ones first."""


class BackendConformance:
    """Subclass it in a test module, name the plugin, and pytest runs every check on it.

    Attributes:
        plugin: descriptor under test; it needs no registration.
        specs: options to check with; the defaults when empty.
        overrides: Hydra overrides for every configuration, such as ``device=cuda``.
    """

    plugin: ClassVar[BackendPlugin]
    specs: ClassVar[Sequence[BackendSpec]] = ()
    overrides: ClassVar[Sequence[str]] = ()
    _cases: ClassVar[Sequence[BackendCase]]

    @classmethod
    def cases(cls) -> Sequence[BackendCase]:
        """One case per spec, made once per class."""
        if "_cases" not in vars(cls):
            cls._cases = [
                BackendCase(plugin=cls.plugin, spec=spec, overrides=tuple(cls.overrides))
                for spec in cls.specs or (cls.plugin.spec(),)
            ]
        return cls._cases

    def _check(self, name: str) -> None:
        run_over(BACKEND_CHECKS[name], self.cases())

    def test_it_is_listed_and_planned_without_torch(self) -> None:
        """Descriptor, reasons and requests import no torch."""
        self._check("light_import")

    def test_its_reasons_and_requests_are_pure(self) -> None:
        """Equal questions have equal answers."""
        self._check("reasons_and_requests_pure")

    def test_workspaces_are_planned_and_allocated_alike(self) -> None:
        """``bind`` keeps views of what was planned."""
        self._check("workspaces_planned_equal_allocated")

    def test_it_agrees_on_every_layer(self) -> None:
        """All layer types, uniform and ragged."""
        self._check("agrees_on_every_layer")

    def test_it_agrees_on_sinks(self) -> None:
        """Sinks of any size."""
        self._check("agrees_on_sinks")

    def test_it_agrees_on_short_lists(self) -> None:
        """Lists of any length."""
        self._check("agrees_on_short_lists")

    def test_it_agrees_on_empty_rows(self) -> None:
        """No key, no output."""
        self._check("agrees_on_empty_rows")

    def test_it_agrees_in_bfloat16(self) -> None:
        """Half precision, full accumulation."""
        self._check("agrees_in_bfloat16")

    def test_it_is_captured_and_replayed(self) -> None:
        """Every stage passes."""
        self._check("captured_and_replayed")

    def test_its_tokens_equal_the_reference(self) -> None:
        """The whole model decodes alike."""
        self._check("tokens_equal_the_reference")

    def test_memory_is_given_back(self) -> None:
        """Closing releases the arena."""
        self._check("memory_given_back")
