"""FlashInfer's MLA kernels with a plan that is made once and shortened on the device.

A plan splits every row's list into work items for the multiprocessors. It is made for full lists, on the host, before
capture. Inside each step a few tensor operations then cut every item at its row's real length, so lists are exact, no
padding is attended to, and nothing waits for the host. The sink, which these kernels lack, is applied from the
log-sum-exp: ``out · sigmoid(lse − sink)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

import torch

from dspark_factory.attention.flashinfer.modules import mla_module
from dspark_factory.attention.flashinfer.shapes import PLAN_NBYTES

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_factory.api import KeyLists
    from dspark_factory.attention.flashinfer.shapes import Shape

MAX_WORK_ITEMS = 16384
"""A plan holds nine tables of this many numbers; the shortening adds two more behind them."""

# Places in the plan information that ``plan`` returns; they are offsets into the plan's memory.
_Q_INDPTR, _KV_LEN, _KV_START, _KV_END, _WORK_INDPTR, _BLOCKS = 2, 11, 13, 14, 15, 1


class MlaKernel:
    """``fa3`` (Hopper) or ``fa2`` for one shape.

    Args:
        kind: ``fa3`` or ``fa2``.
        shape: rows and list length that the plan is for.
        heads: query heads.
        head_dim: 128, 256 or 512.
        workspace: ``[bytes]`` uint8 on the device.
        plan_memory: ``[PLAN_NBYTES]`` uint8 on the device, of this shape alone.
    """

    def __init__(
        self, kind: str, shape: Shape, heads: int, head_dim: int, *, workspace: Tensor, plan_memory: Tensor
    ) -> None:
        self.name = kind
        self._module = mla_module(kind, head_dim)
        self._workspace, self._memory, self._heads = workspace, plan_memory, heads
        with torch.inference_mode(False):  # AUTOTUNE makes kernels; what it keeps is used outside of it
            self._info = self._plan(shape, head_dim)
            self._keep_tables()
        self._shortened_for: ref[Tensor] | None = None

    def run(self, q: Tensor, pool: Tensor, keys: KeyLists, sinks: Tensor, out: Tensor) -> None:
        """Shorten the plan where these lengths are new, attend, apply the sink."""
        if self._shortened_for is None or self._shortened_for() is not keys.lens:
            self._shorten(keys.lens)
            self._shortened_for = ref(keys.lens)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        paged = pool.unsqueeze(1)
        self._module.run(
            self._workspace, self._memory, self._info, q, q[..., :0], paged, paged[..., :0], keys.rows.flatten(), out,
            lse, 0, self._heads, 1, q.shape[-1] ** -0.5, True, 1.0, 1.0, None,
        )  # fmt: skip
        out.mul_(torch.sigmoid(lse - sinks).unsqueeze(-1))

    def _plan(self, shape: Shape, head_dim: int) -> list[int]:
        rows = torch.arange(shape.rows + 1, dtype=torch.int32)
        staging = torch.zeros(PLAN_NBYTES, dtype=torch.uint8, pin_memory=True)
        lens = torch.full((shape.rows,), shape.keys, dtype=torch.int32)
        info, nbytes = self._module.plan_with_staged_workspace_bytes(
            self._workspace,
            self._memory,
            staging,
            rows,
            rows * shape.keys,
            lens,
            self._heads,
            head_dim,
            False,
        )
        self._memory[:nbytes].copy_(staging[:nbytes])
        return info

    def _keep_tables(self) -> None:
        """Views of the plan that a shortening reads and writes; full ends and rows are kept behind the plan."""
        info = [int(value) for value in self._info]
        items = int(self._view(info[_WORK_INDPTR], info[_BLOCKS] + 1)[-1])
        kept = PLAN_NBYTES - 2 * 4 * MAX_WORK_ITEMS
        self._row = self._view(kept, items).copy_(self._view(info[_Q_INDPTR], items))
        self._full_end = self._view(kept + 4 * MAX_WORK_ITEMS, items).copy_(self._view(info[_KV_END], items))
        self._len, self._end = self._view(info[_KV_LEN], items), self._view(info[_KV_END], items)
        self._start = self._view(info[_KV_START], items)

    def _view(self, offset: int, count: int) -> Tensor:
        return self._memory[offset : offset + 4 * count].view(torch.int32)

    def _shorten(self, lens: Tensor) -> None:
        """Every work item ends where its row's list does; items past the end become empty."""
        self._len.copy_(lens[self._row])
        torch.minimum(self._full_end, torch.maximum(self._len, self._start), out=self._end)
