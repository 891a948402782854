"""The conformance suite on the ring, with its default depth and with one that wraps at once."""

from __future__ import annotations

from dspark_accept_history import AcceptHistorySpec, plugin

from dspark_factory.testing import ProviderConformance


class TestAcceptHistory(ProviderConformance):
    plugin = plugin
    specs = (AcceptHistorySpec(), AcceptHistorySpec(depth=2))
