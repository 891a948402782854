"""From tables with holes to the compact key lists that backends read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_factory.api import KeyLists


@dataclass(frozen=True, slots=True, kw_only=True)
class ListJoin:
    """How a row's window and its compressed entries become one list without holes.

    Side by side they have holes at both ends only: before a short sequence's window, and after the last entry. So a
    row's list is a shift of the two.

    Attributes:
        take: ``[rows, keys]`` int64 column of the two side by side.
        live: ``[rows, keys]`` bool, whether a place of the list is in use.
        lens: ``[rows]`` int32, the same tensor for every layer of the type.
    """

    take: Tensor
    live: Tensor
    lens: Tensor

    def join(self, window: Tensor, entries: Tensor) -> KeyLists:
        """``window [rows, window]`` with holes at the front and ``entries [rows, n]`` with holes at the end."""
        both = torch.cat([window, entries], dim=1).gather(1, self.take)
        return KeyLists(rows=torch.where(self.live, both, -1).int(), lens=self.lens)


def join_of(window: Tensor, lens: Tensor, entries: int) -> ListJoin:
    """The join of a window with up to ``entries`` entries into lists of ``lens [rows]`` int32."""
    columns = window.shape[1] + entries
    missing = window.lt(0).sum(1, keepdim=True)
    place = torch.arange(columns, device=window.device)
    return ListJoin(take=(place + missing).clamp(max=columns - 1), live=place < lens.unsqueeze(1), lens=lens)


def compact(lists: Tensor) -> KeyLists:
    """Key lists of ``lists [rows, keys]`` with holes of −1 at both ends of a row."""
    real = lists.ge(0)
    lens = real.sum(1, keepdim=True)
    place = torch.arange(lists.shape[1], device=lists.device)
    first = real.int().argmax(1, keepdim=True)
    shifted = lists.gather(1, (place + first).clamp(max=lists.shape[1] - 1))
    return KeyLists(rows=torch.where(place < lens, shifted, -1).int(), lens=lens.squeeze(1).int())
