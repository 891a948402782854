"""The resolved geometry: every number that a shape depends on, derived in one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from dspark_factory.api import DType


class LayerType(Enum):
    """Attention layer types of DeepSeek-V4, named as in its checkpoints."""

    SLIDING = "sliding_attention"
    CSA = "compressed_sparse_attention"
    HCA = "heavily_compressed_attention"


@dataclass(frozen=True, kw_only=True)
class Dims:
    """Numbers only; frozen. Counts carry their unit in the name.

    ``verify_widths`` is empty when speculation is off, and then nothing speculative has a size. A *width* counts
    the rows of one request, anchor included, so ``num_draft_tokens`` is a width.
    """

    # model
    vocab_size: int
    hidden_size: int
    layer_types: tuple[LayerType, ...]
    num_heads: int
    head_dim: int
    rope_head_dim: int
    sliding_window: int
    csa_ratio: int
    hca_ratio: int
    index_heads: int
    index_head_dim: int
    index_topk: int
    # speculation
    num_draft_tokens: int | None
    verify_widths: tuple[int, ...]
    schedule: tuple[tuple[int, int | None], ...] = ()
    ragged: bool
    ragged_shares: tuple[float, ...]
    # capacity
    max_requests: int
    context_length: int
    page_tokens: int
    kv_pages: int
    capture_requests: tuple[int, ...]
    max_batch_requests: int
    extend_rows: int
    extend_requests: int
    # numerics
    dtype: DType
    kv_dtype: DType
    device_kind: str
    sampling: bool
    fused_kernels: bool = False
    """Whether decode and verify steps run Triton kernels around attention."""

    @property
    def block_size(self) -> int | None:
        """Drafts per request and step: one less than the draft-token count, which includes the anchor."""
        return None if self.num_draft_tokens is None else self.num_draft_tokens - 1

    @property
    def speculation(self) -> bool:
        """Whether any draft-token count is declared."""
        return bool(self.verify_widths)

    @property
    def max_width(self) -> int:
        """Most rows of one request in a decode or verify step."""
        return max((1, *self.verify_widths))

    @property
    def max_batch_rows(self) -> int:
        """Most rows of any decode or verify step, padding included."""
        return self.max_batch_requests * self.max_width

    @property
    def max_rows(self) -> int:
        """Most rows of any step, extend included."""
        return max(self.max_batch_rows, self.extend_rows)

    @property
    def max_step_requests(self) -> int:
        """Most requests of any step, extend included."""
        return max(self.max_batch_requests, self.extend_requests)

    def verify_width(self, requests: int) -> int | None:
        """Rows per request that a batch of this size verifies; ``None`` where it decodes without drafts."""
        width = self.num_draft_tokens
        for first, scheduled in self.schedule:
            if first <= requests:
                width = scheduled
        return width

    @property
    def request_slots(self) -> int:
        """Slots with state of their own: the request pool and one scratch slot for padding."""
        return self.max_requests + 1

    @property
    def scratch_slot(self) -> int:
        """Slot that padding rows write to; nothing reads it."""
        return self.max_requests

    @property
    def scratch_page(self) -> int:
        """Page that padding writes go to; a page table of zeros points here."""
        return 0

    @property
    def pages_per_request(self) -> int:
        """Page-table columns: pages of a request at full context."""
        return -(-self.context_length // self.page_tokens)

    @property
    def page_updates(self) -> int:
        """Most page-table entries that one step can change."""
        decode = self.max_batch_requests * self.new_pages(self.max_width)
        extend = self.extend_rows // self.page_tokens + 2 * self.extend_requests
        return max(decode, extend)

    def new_pages(self, rows: int) -> int:
        """Most pages that ``rows`` consecutive positions of one request can begin."""
        return (rows - 1) // self.page_tokens + 1

    def count(self, layer_type: LayerType) -> int:
        """Layers of this type."""
        return sum(kind is layer_type for kind in self.layer_types)

    def ratio(self, layer_type: LayerType) -> int:
        """Tokens per compressed entry; 0 for sliding-window layers."""
        return {LayerType.SLIDING: 0, LayerType.CSA: self.csa_ratio, LayerType.HCA: self.hca_ratio}[
            layer_type
        ]

    @cached_property
    def has_compressed_layers(self) -> bool:
        """Whether any layer keeps compressed entries, and so needs pages."""
        return any(kind is not LayerType.SLIDING for kind in self.layer_types)

    @property
    def window_ring_rows(self) -> int:
        """Ring rows per request: one window, and the rows of a step that may all be rejected.

        A step at prefix ``p`` writes up to ``p + N - 1`` before its first row reads back to ``p - W + 1``.
        """
        return self.sliding_window + self.max_width - 1

    def state_ring_rows(self, layer_type: LayerType) -> int:
        """Compressor-state ring rows per request.

        A group reads back ``r - 1`` tokens from the row that completes it (``2 r - 1`` with the overlap of the
        sparse layers). A step's own rows, all of which may be rejected, have room beside them, so it does not matter
        which of its groups are read before its rows are written.
        """
        back = self.ratio(layer_type) * (2 if layer_type is LayerType.CSA else 1) - 1
        return back + self.max_width

    def entries_per_page(self, layer_type: LayerType) -> int:
        """Compressed entries of one page; 0 for sliding-window layers."""
        ratio = self.ratio(layer_type)
        return self.page_tokens // ratio if ratio else 0

    def max_entries(self, layer_type: LayerType) -> int:
        """Compressed entries of one request at full context."""
        ratio = self.ratio(layer_type)
        return self.context_length // ratio if ratio else 0

    @property
    def selected_entries(self) -> int:
        """Entries that the indexer selects per row."""
        return min(self.index_topk, self.max_entries(LayerType.CSA))

    def listed_entries(self, layer_type: LayerType) -> int:
        """Entries that a row's key list has room for: the selected ones of sparse layers, all of the others."""
        return self.selected_entries if layer_type is LayerType.CSA else self.max_entries(layer_type)

    def list_keys(self, layer_type: LayerType) -> int:
        """Length of a row's key list: its window, and its entries."""
        return self.sliding_window + self.listed_entries(layer_type)

    @property
    def ring_region_rows(self) -> int:
        """Pool rows of all window rings."""
        return self.request_slots * self.window_ring_rows

    @property
    def entry_region_start(self) -> int:
        """First pool row of compressed entries: after the rings and the in-flight rows of extend and draft."""
        return self.ring_region_rows + self.extend_rows

    def pool_rows(self, layer_type: LayerType) -> int:
        """Rows of a layer's KV pool: rings, in-flight rows, compressed entries with one scratch page."""
        return self.entry_region_start + (self.kv_pages + 1) * self.entries_per_page(layer_type)
