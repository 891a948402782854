"""The conformance suite for buffer providers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from dspark_factory.api import BufferPlugin, BufferSpec, Role
from dspark_factory.testing import provider_lifecycle as lifecycle
from dspark_factory.testing import provider_planning as planning
from dspark_factory.testing.case import ProviderCase
from dspark_factory.testing.results import run_over

PROVIDER_CHECKS: dict[str, Callable[[ProviderCase], None]] = {
    check.__name__: check
    for check in (
        planning.light_import,
        planning.gate_answers_everywhere,
        planning.gate_and_requests_pure,
        planning.off_means_zero_bytes,
        planning.names_unique,
        planning.roles_declared,
        planning.capacity_declared,
        planning.no_growth_with_context,
        lifecycle.planned_equals_allocated,
        lifecycle.runs_at_every_size,
        lifecycle.capture_lint,
        lifecycle.addresses_stay,
        lifecycle.buffers_used_by_their_role,
        lifecycle.stays_in_its_rows,
        lifecycle.leaves_others_alone,
        lifecycle.replay_equals_the_step,
        lifecycle.memory_given_back,
    )
}
"""Every check by name, cheap ones first."""


class ProviderConformance:
    """Subclass it in a test module, name the plugin, and pytest runs every check on it.

    Attributes:
        plugin: descriptor under test; it needs no registration.
        specs: options to check with; the defaults when empty.
        overrides: Hydra overrides for every configuration, such as what the gate needs.
        companions: third-party plugins that it requires, or that read its buffers.
        grows_with_context: whether its bytes may grow with the context length.
        roles: by buffer name, which model reads it, to check what is declared.
    """

    plugin: ClassVar[BufferPlugin]
    specs: ClassVar[Sequence[BufferSpec]] = ()
    overrides: ClassVar[Sequence[str]] = ()
    companions: ClassVar[Sequence[BufferPlugin]] = ()
    grows_with_context: ClassVar[bool] = False
    roles: ClassVar[Mapping[str, Role]] = {}
    _cases: ClassVar[Sequence[ProviderCase]]

    @classmethod
    def cases(cls) -> Sequence[ProviderCase]:
        """One case per spec, made once per class."""
        if "_cases" not in vars(cls):
            cls._cases = [
                ProviderCase(
                    plugin=cls.plugin,
                    spec=spec,
                    overrides=tuple(cls.overrides),
                    companions=tuple(cls.companions),
                    grows_with_context=cls.grows_with_context,
                    roles=cls.roles,
                )
                for spec in cls.specs or (cls.plugin.spec(),)
            ]
        return cls._cases

    def _check(self, name: str) -> None:
        run_over(PROVIDER_CHECKS[name], self.cases())

    def test_it_is_listed_and_planned_without_torch(self) -> None:
        """Descriptor, gate and requests import no torch."""
        self._check("light_import")

    def test_its_gate_answers_for_every_configuration(self) -> None:
        """Speculation on, off, every candidate: an answer with a reason."""
        self._check("gate_answers_everywhere")

    def test_its_gate_and_requests_are_pure(self) -> None:
        """Equal questions have equal answers."""
        self._check("gate_and_requests_pure")

    def test_off_means_zero_bytes(self) -> None:
        """Nothing is planned with ``enabled=false``."""
        self._check("off_means_zero_bytes")

    def test_its_buffer_names_are_unique(self) -> None:
        """It can be planned beside the built-in providers."""
        self._check("names_unique")

    def test_its_roles_are_declared(self) -> None:
        """Every buffer says which model reads it."""
        self._check("roles_declared")

    def test_its_capacity_covers_the_largest_bucket(self) -> None:
        """Requests, slots and rows of the largest bucket and candidate fit."""
        self._check("capacity_declared")

    def test_nothing_grows_with_the_context(self) -> None:
        """Bytes do not depend on the context length."""
        self._check("no_growth_with_context")

    def test_planned_equals_allocated(self) -> None:
        """``bind`` keeps views of what was planned."""
        self._check("planned_equals_allocated")

    def test_it_runs_at_every_size(self) -> None:
        """Every key runs full, short and padded."""
        self._check("runs_at_every_size")

    def test_the_capture_lint_is_clean(self) -> None:
        """Every graph is captured."""
        self._check("capture_lint")

    def test_no_address_moves(self) -> None:
        """Buffers lie where CONSTRUCT put them."""
        self._check("addresses_stay")

    def test_its_buffers_are_used_by_their_role(self) -> None:
        """A declared role is the true one."""
        self._check("buffers_used_by_their_role")

    def test_it_stays_in_its_rows(self) -> None:
        """Guard zones stay as they are."""
        self._check("stays_in_its_rows")

    def test_it_leaves_others_alone(self) -> None:
        """Everything else is bit for bit the same without it."""
        self._check("leaves_others_alone")

    def test_a_replay_equals_the_step(self) -> None:
        """A graph does what the Python step does."""
        self._check("replay_equals_the_step")

    def test_memory_is_given_back(self) -> None:
        """Build and close as often as you like."""
        self._check("memory_given_back")
