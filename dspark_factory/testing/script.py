"""A fixed series of steps: prompts, then every captured key at its largest and with fewer rows than it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from dspark_factory.api import StepBatch
from dspark_factory.kv.page_allocator import PageAllocator
from dspark_factory.pipeline.batch import StepResult, make_batch, padded
from dspark_factory.planning.dims import Dims
from dspark_factory.planning.graph_keys import GraphKey, LayoutForm, Mode

Replay = Callable[[StepBatch], StepResult]

_PROMPT_TOKENS = (5, 23, 9)
_SPACE = 32
"""Repeated tokens are easy to predict, so that some drafts are accepted and others are not."""


class Script:
    """Plays the series on anything that replays batches; equal dims give equal batches.

    Args:
        dims: geometry.
        pages: allocator of the assembly, with no request in it.
        keys: captured keys.
    """

    def __init__(self, dims: Dims, pages: PageAllocator, keys: tuple[GraphKey, ...]) -> None:
        self._dims, self._pages = dims, pages
        self._keys = keys
        self._slots = [pages.join() for _ in range(max(key.requests for key in keys))]
        self._prefix_lens = [0] * len(self._slots)
        self._anchors = [_SPACE] * len(self._slots)

    def play(self, replay: Replay) -> Iterator[StepResult]:
        """Run step after step; the caller looks at the buffers in between."""
        yield from self._extend(replay)
        for key in self._keys:
            yield self._step(replay, key, self._full_rows(key))
            if key.requests > 1:
                yield self._step(replay, key, [1] * (key.requests - 1))
            if key.width > 1 and key.form is LayoutForm.UNIFORM:
                yield self._step(replay, key, [1 + index % key.width for index in range(key.requests)])

    def _extend(self, replay: Replay) -> Iterator[StepResult]:
        """One prompt after the other, in chunks if need be."""
        for index in range(len(self._slots)):
            tokens = self._tokens(index, _PROMPT_TOKENS[index % len(_PROMPT_TOKENS)])
            bounds = [*range(0, len(tokens), self._dims.extend_rows), len(tokens)]
            for start, end in pairwise(bounds):
                batch = self._batch(Mode.EXTEND, [index], [tokens[start:end]])
                result = replay(batch)
                self._prefix_lens[index] += end - start
                self._anchors[index] = result.tokens[0][-1]
                yield result

    def _full_rows(self, key: GraphKey) -> list[int]:
        base, extra = divmod(key.rows, key.requests)
        return [base + (index < extra) for index in range(key.requests)]

    def _step(self, replay: Replay, key: GraphKey, row_lens: list[int]) -> StepResult:
        chosen = list(range(len(row_lens)))
        rows = [
            [self._anchors[index], *self._tokens(index, count - 1)]
            for index, count in zip(chosen, row_lens, strict=True)
        ]
        batch = self._batch(key.mode, chosen, rows, width=key.width, form=key.form)
        result = replay(padded(batch, key))
        for index, tokens in zip(chosen, result.tokens, strict=True):
            self._prefix_lens[index] += len(tokens)
            self._anchors[index] = tokens[-1]
        return result

    def _tokens(self, index: int, count: int) -> list[int]:
        """Spaces for one request, changing bytes for the others."""
        if index == 0:
            return [_SPACE] * count
        start = self._prefix_lens[index]
        return [
            (31 * index + 7 * (start + place)) % min(128, self._dims.vocab_size) for place in range(count)
        ]

    def _batch(
        self,
        mode: Mode,
        chosen: list[int],
        rows: list[list[int]],
        *,
        width: int | None = None,
        form: LayoutForm | None = None,
    ) -> StepBatch:
        updates = [
            update
            for index, own in zip(chosen, rows, strict=True)
            for update in self._pages.extend(self._slots[index], self._prefix_lens[index] + len(own))
        ]
        sampling = self._dims.sampling
        return make_batch(
            self._dims,
            mode,
            slots=[self._slots[index] for index in chosen],
            prefix_lens=[self._prefix_lens[index] for index in chosen],
            token_ids=rows,
            page_updates=updates,
            width=width,
            form=form,
            temperatures=[1.0] * len(chosen) if sampling else (),
            uniforms=[[0.5] * self._dims.max_width] * len(chosen) if sampling else (),
        )
