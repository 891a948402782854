"""Options of third-party plugins pass through, checked by the plugin's own schema."""

from __future__ import annotations

import pytest

from dspark_factory.config import load_config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.plan import plan
from tests.conftest import Register
from tests.third_party import CHOOSY, HISTORY, ChoosySpec, HistorySpec

SELECTED = "buffers=[default,history]"


def test_own_options_reach_the_provider(register: Register) -> None:
    """Field report 67: a provider gets its own configuration subtree; the core knows none of its fields."""
    register(HISTORY)
    config = load_config([SELECTED, "buffers.history.depth=16", "buffers.history.quantiles=[0.1,0.9]"])
    spec = config.buffers["history"]
    assert type(spec) is HistorySpec
    assert (spec.depth, spec.quantiles) == (16, [0.1, 0.9])
    (planned,) = [buffer for buffer in plan(config).buffers if buffer.provider == "history"]
    assert planned.sizes == (5, 16)


@pytest.mark.parametrize("role", ["TARGET", "DRAFT"])
def test_a_provider_serves_either_role(register: Register, role: str) -> None:
    """Field report 67: one registry for all roles."""
    register(HISTORY)
    planned = plan(load_config([SELECTED, f"buffers.history.role={role}"]))
    assert planned.nbytes_by_role[role.lower()] >= 5 * 64 * 4
    assert (planned.nbytes_by_role["draft"] > 0) == (role == "DRAFT")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["buffers.history.depht=16"], "did you mean buffers.history.depth?"),
        (["+buffers.history.depht=16"], "did you mean buffers.history.depth?"),
        (["buffers.history.depth=deep"], "buffers.history.depth=deep: write an integer"),
        (["buffers.history.depth=2000"], "at most 1000 steps are kept"),
        (["buffers.history.role=both"], "write one of TARGET, DRAFT"),
    ],
)
def test_own_options_are_checked_by_the_own_schema(
    register: Register, overrides: list[str], words: str
) -> None:
    """Field report 67: validated by the provider's own schema, refusals of its dataclass included."""
    register(HISTORY)
    with pytest.raises(ConfigError) as refused:
        load_config([SELECTED, *overrides])
    (reason,) = refused.value.reasons
    assert words in reason


def test_a_plugin_is_known_while_it_is_registered_and_selected_by_name(register: Register) -> None:
    with pytest.raises(ConfigError, match="buffers has no 'history'"):
        load_config([SELECTED])
    register(HISTORY)
    assert "history" not in load_config().buffers
    with pytest.raises(ConfigError, match=r"buffers\.history is not selected"):
        load_config(["buffers.history.depth=16"])


def test_a_third_party_backend_has_its_own_options(register: Register) -> None:
    register(CHOOSY)
    config = load_config(["backend=choosy", "backend.taste=3"])
    assert config.backend == ChoosySpec(kind="choosy", taste=3)
    with pytest.raises(ConfigError, match="write backend=choosy"):
        load_config(["backend.kind=choosy"])
