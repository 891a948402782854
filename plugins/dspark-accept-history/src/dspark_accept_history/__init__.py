"""A device ring of accepted lengths per request slot: descriptor and options, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_factory.api import BufferPlugin, BufferSpec

__all__ = ["AcceptHistorySpec", "plugin"]


@dataclass(kw_only=True)
class AcceptHistorySpec(BufferSpec):
    """Options of the ring."""

    depth: int = 64
    """Verify steps that are kept per request slot; at least 1."""

    def __post_init__(self) -> None:
        """Refuse a ring without room."""
        if isinstance(self.depth, int) and self.depth < 1:
            raise ValueError(f"buffers.accept_history.depth={self.depth}: a ring keeps at least 1 step")


plugin = BufferPlugin(
    name="accept_history",
    spec=AcceptHistorySpec,
    provider="dspark_accept_history.provider:AcceptHistory",
    config_package="dspark_accept_history.conf",
    requires=("accept_lens",),
)
