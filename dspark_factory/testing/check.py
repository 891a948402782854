"""The suites outside pytest, for a plugin that is registered."""

from __future__ import annotations

from collections.abc import Sequence

from dspark_factory.registry import backend_plugins, buffer_plugins
from dspark_factory.testing.backend import BACKEND_CHECKS
from dspark_factory.testing.case import BackendCase, ProviderCase, companions_of
from dspark_factory.testing.provider import PROVIDER_CHECKS
from dspark_factory.testing.results import CheckResult, run_all


def check_plugin(name: str, *, overrides: Sequence[str] = ()) -> Sequence[CheckResult]:
    """Run every check on a registered buffer provider or attention backend, with its default options.

    Args:
        name: registered name.
        overrides: Hydra overrides for every configuration, such as what its gate needs.

    Raises:
        PluginError: no plugin has this name; proposes the nearest.
    """
    if name in backend_plugins:
        plugin = backend_plugins[name]
        case = BackendCase(plugin=plugin, spec=plugin.spec(), overrides=tuple(overrides))
        return run_all(BACKEND_CHECKS, [case])
    provider = buffer_plugins[name]
    return run_all(
        PROVIDER_CHECKS,
        [
            ProviderCase(
                plugin=provider,
                spec=provider.spec(),
                overrides=tuple(overrides),
                companions=companions_of(provider),
            )
        ],
    )
