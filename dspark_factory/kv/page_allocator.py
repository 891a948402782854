"""Host allocator of KV pages and request slots."""

from __future__ import annotations

from dspark_factory.errors import CapacityError
from dspark_factory.planning.dims import Dims


class PageAllocator:
    """Hands out request slots and, page by page, room in the compressed pools.

    Page 0 is scratch and never handed out. Nothing here touches the device: :meth:`extend` returns the changes
    that the next step's batch must carry.
    """

    def __init__(self, dims: Dims) -> None:
        self._dims = dims
        self._free_slots = list(range(dims.max_requests - 1, -1, -1))
        self._free_pages = list(range(dims.kv_pages, 0, -1))
        self._pages: dict[int, list[int]] = {}

    @property
    def free_slots(self) -> int:
        """Requests that can still join."""
        return len(self._free_slots)

    @property
    def free_pages(self) -> int:
        """Pages that no request holds."""
        return len(self._free_pages)

    def join(self) -> int:
        """Take a request slot.

        Raises:
            CapacityError: all slots are taken.
        """
        if not self._free_slots:
            raise CapacityError(
                f"all {self._dims.max_requests} request slots are taken; raise pipeline.max_requests or wait"
            )
        slot = self._free_slots.pop()
        self._pages[slot] = []
        return slot

    def extend(self, slot: int, length: int) -> list[tuple[int, int, int]]:
        """Make room for ``length`` tokens; returns the ``(slot, page index, page)`` entries that are new.

        Raises:
            CapacityError: the pool has too few pages, or the request passes the context length. Nothing changes.
        """
        if length > self._dims.context_length:
            raise CapacityError(
                f"a request of {length} tokens is beyond pipeline.context_length={self._dims.context_length}"
            )
        if not self._dims.has_compressed_layers:
            return []
        held = self._pages[slot]
        needed = -(-length // self._dims.page_tokens) - len(held)
        if needed > len(self._free_pages):
            raise CapacityError(
                f"request slot {slot} needs {needed} more KV pages and {len(self._free_pages)} are free; "
                "raise pipeline.kv_pool_tokens"
            )
        updates = []
        for _ in range(needed):
            page = self._free_pages.pop()
            updates.append((slot, len(held), page))
            held.append(page)
        return updates

    def leave(self, slot: int) -> None:
        """Give the slot and its pages back; the next owner rewrites everything before it reads."""
        self._free_pages += reversed(self._pages.pop(slot))
        self._free_slots.append(slot)
