"""Conformance suites for plugins: subclass one in a plugin's own tests, or run :func:`check_plugin`.

    from dspark_factory.testing import ProviderConformance

    class TestAcceptHistory(ProviderConformance):
        plugin = my_package.plugin
        specs = (my_package.MySpec(depth=2),)

Nothing here imports pytest; a check that cannot run raises ``unittest.SkipTest``, which pytest shows as skipped.
"""

from dspark_factory.testing.backend import BackendConformance
from dspark_factory.testing.check import check_plugin
from dspark_factory.testing.provider import ProviderConformance
from dspark_factory.testing.results import CheckFailed, CheckNotRun, CheckResult

__all__ = [
    "BackendConformance",
    "CheckFailed",
    "CheckNotRun",
    "CheckResult",
    "ProviderConformance",
    "check_plugin",
]
