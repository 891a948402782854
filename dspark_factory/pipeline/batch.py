"""Host-side batches: checked once, then padded to a captured graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from torch import Tensor

from dspark_factory.api import StepBatch
from dspark_factory.errors import BatchError
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import (
    GraphKey,
    LayoutForm,
    Mode,
    idle_key,
    ragged_key,
    uniform_key,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step committed.

    Attributes:
        key: the graph that ran, padding included; the needed key where none was captured.
        tokens: committed tokens of each request: the accepted drafts and one more.
        logits: ``[rows, vocabulary]`` of the step's rows where ``buffers.logits.enabled=true``; a view that the
            next step overwrites.
    """

    key: GraphKey
    tokens: list[list[int]]
    logits: Tensor | None = None

    @property
    def accept_lens(self) -> list[int]:
        """Committed tokens per request, bonus included."""
        return [len(tokens) for tokens in self.tokens]


def make_batch(
    dims: Dims,
    mode: Mode,
    *,
    slots: Sequence[int],
    prefix_lens: Sequence[int],
    token_ids: Sequence[Sequence[int]],
    page_updates: Sequence[tuple[int, int, int]] = (),
    width: int | None = None,
    form: LayoutForm | None = None,
    temperatures: Sequence[float] = (),
    uniforms: Sequence[Sequence[float]] = (),
) -> StepBatch:
    """A checked batch of one step, with the smallest key that describes it.

    A verify window that passes the context limit is clipped to it, a request already at the limit is refused.
    An empty batch is idle.

    Args:
        dims: geometry.
        mode: how the rows are to be read.
        slots: request slot of each request, all different.
        prefix_lens: tokens committed before this step.
        token_ids: rows of each request: anchor and drafts, or a chunk.
        page_updates: changes of the page table, from the page allocator.
        width: verify width; the configured one when ``None``.
        form: layout of the rows; the configured one when ``None``.
        temperatures: per request; greedy when empty.
        uniforms: random numbers per request, the first for the bonus token; needed when sampling.

    Raises:
        BatchError: with the request and the number that is wrong.
    """
    if not slots:
        return StepBatch(key=idle_key(), slots=(), prefix_lens=(), row_lens=(), token_ids=())
    if not len(slots) == len(prefix_lens) == len(token_ids):
        raise BatchError(
            f"{len(slots)} slots, {len(prefix_lens)} prefix_lens and {len(token_ids)} token_ids must be as many"
        )
    room = [dims.context_length - prefix for prefix in prefix_lens]
    if mode is Mode.TARGET_VERIFY:
        token_ids = [tokens[: max(space, 0)] for tokens, space in zip(token_ids, room, strict=True)]
    _check_requests(dims, slots, prefix_lens, token_ids)
    row_lens = [len(tokens) for tokens in token_ids]
    key = _needed_key(dims, mode, row_lens, width, form)
    if dims.sampling and len(uniforms) != len(slots):
        raise BatchError(
            f"workload.temperature is above 0, so every one of {len(slots)} requests needs uniforms, "
            f"{len(uniforms)} have them"
        )
    return StepBatch(
        key=key,
        slots=tuple(slots),
        prefix_lens=tuple(prefix_lens),
        row_lens=tuple(row_lens),
        token_ids=tuple(tuple(tokens) for tokens in token_ids),
        page_updates=tuple(page_updates),
        temperatures=tuple(temperatures) or (0.0,) * len(slots),
        uniforms=tuple(tuple(numbers) for numbers in uniforms),
    )


def padded(batch: StepBatch, key: GraphKey) -> StepBatch:
    """The batch for a captured graph; what it lacks is padding."""
    return batch if key == batch.key else replace(batch, key=key)


def split(batch: StepBatch, most_requests: int) -> list[StepBatch]:
    """The batch in parts of at most ``most_requests`` requests, in order."""
    parts = []
    for start in range(0, len(batch.slots), most_requests):
        part = slice(start, start + most_requests)
        row_lens = batch.row_lens[part]
        key = replace(
            batch.key,
            requests=len(row_lens),
            rows=sum(row_lens) if batch.key.form is LayoutForm.RAGGED else len(row_lens) * batch.key.width,
        )
        parts.append(
            replace(
                batch,
                key=key,
                slots=batch.slots[part],
                prefix_lens=batch.prefix_lens[part],
                row_lens=row_lens,
                token_ids=batch.token_ids[part],
                page_updates=batch.page_updates if start == 0 else (),
                temperatures=batch.temperatures[part],
                uniforms=batch.uniforms[part],
            )
        )
    return parts


def _needed_key(
    dims: Dims, mode: Mode, row_lens: Sequence[int], width: int | None, form: LayoutForm | None
) -> GraphKey:
    requests = len(row_lens)
    if mode is Mode.EXTEND:
        return ragged_key(mode, requests=requests, rows=sum(row_lens), width=max(row_lens))
    width = 1 if mode is Mode.DECODE else width or dims.num_draft_tokens or 1
    if max(row_lens) > width:
        raise BatchError(
            f"{mode.value} takes at most {width} rows per request, a request has {max(row_lens)}"
        )
    if form is None:
        ragged = dims.ragged and mode is Mode.TARGET_VERIFY
        form = LayoutForm.RAGGED if ragged else LayoutForm.UNIFORM
    if form is LayoutForm.RAGGED:
        return ragged_key(mode, requests=requests, rows=sum(row_lens), width=width)
    return uniform_key(mode, requests=requests, width=width)


def _check_requests(
    dims: Dims, slots: Sequence[int], prefix_lens: Sequence[int], token_ids: Sequence[Sequence[int]]
) -> None:
    if not _all_in_range(dims, slots, prefix_lens, token_ids):
        _name_what_is_wrong(dims, slots, prefix_lens, token_ids)


def _all_in_range(
    dims: Dims, slots: Sequence[int], prefix_lens: Sequence[int], token_ids: Sequence[Sequence[int]]
) -> bool:
    """Whether everything is as it should be; all requests at once, because every step asks."""
    slot, prefix = np.asarray(slots), np.asarray(prefix_lens)
    lens = np.fromiter(map(len, token_ids), np.int64, len(slots))
    tokens = np.fromiter(chain.from_iterable(token_ids), np.int64, int(lens.sum()))
    return bool(
        len(set(slots)) == len(slots)
        and lens.min() > 0
        and slot.min() >= 0
        and slot.max() < dims.max_requests
        and prefix.min() >= 0
        and (prefix + lens).max() <= dims.context_length
        and tokens.min() >= 0
        and tokens.max() < dims.vocab_size
    )


def _name_what_is_wrong(
    dims: Dims, slots: Sequence[int], prefix_lens: Sequence[int], token_ids: Sequence[Sequence[int]]
) -> None:
    if len(set(slots)) != len(slots):
        raise BatchError(f"request slots {list(slots)} are not all different")
    for slot, prefix, tokens in zip(slots, prefix_lens, token_ids, strict=True):
        if not 0 <= slot < dims.max_requests:
            raise BatchError(f"request slot {slot} lies outside the pool of {dims.max_requests}")
        if prefix < 0:
            raise BatchError(f"request slot {slot} has a negative prefix of {prefix}")
        if prefix + len(tokens) > dims.context_length or (not tokens and prefix >= dims.context_length):
            raise BatchError(
                f"request slot {slot} with a prefix of {prefix} and {len(tokens)} rows passes "
                f"pipeline.context_length={dims.context_length}"
            )
        if not tokens:
            raise BatchError(f"request slot {slot} has no row; leave it out of the batch")
        if not all(0 <= token < dims.vocab_size for token in tokens):
            raise BatchError(f"request slot {slot} has a token outside the vocabulary of {dims.vocab_size}")
