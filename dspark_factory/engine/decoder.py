"""The decode loop: admit, extend, draft, verify, commit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dspark_factory.api import StepBatch
from dspark_factory.config.schema import NgramSpec
from dspark_factory.engine.request import Request
from dspark_factory.errors import TaskError
from dspark_factory.factory import Assembly
from dspark_factory.pipeline.batch import make_batch
from dspark_factory.planning.graph_keys import Mode
from dspark_factory.speculative.ngram import NgramDrafter
from dspark_factory.speculative.statistics import AcceptStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Result of decoding a list of prompts.

    Attributes:
        outputs: produced tokens of each prompt.
        statistics: accept statistics of each prompt; without steps when speculation was off.
        prefill_seconds: time in extend steps.
        decode_seconds: time in decode and verify steps, drafting included.
        draft_seconds: drafting, of each decode or verify step.
        verify_seconds: each of those steps on the device, copies included.
    """

    outputs: list[list[int]]
    statistics: list[AcceptStatistics]
    prefill_seconds: float
    decode_seconds: float
    draft_seconds: list[float]
    verify_seconds: list[float]

    @property
    def steps(self) -> int:
        """Decode or verify steps."""
        return len(self.verify_seconds)

    @property
    def tokens(self) -> int:
        """Tokens that decode steps produced: all but the first of each prompt, which its extend step yields."""
        return sum(len(output) - 1 for output in self.outputs)

    @property
    def tokens_per_second(self) -> float:
        """Decode speed over all requests, without prefill."""
        return self.tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def total_statistics(self) -> AcceptStatistics:
        """Accept statistics of all prompts together."""
        total = AcceptStatistics()
        for item in self.statistics:
            total.merge(item)
        return total


class Decoder:
    """Decodes prompts on a prepared assembly, as many at a time as the request pool holds.

    Args:
        assembly: prepared.
        speculative: draft and verify; otherwise one token per request and step.
        most_requests: requests at a time; ``None`` is the request pool.
        on_progress: told the number of tokens that each step produced.
    """

    def __init__(
        self,
        assembly: Assembly,
        *,
        speculative: bool,
        most_requests: int | None = None,
        on_progress: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self._assembly, self._dims = assembly, assembly.dims
        self._workload = assembly.config.workload
        self._speculative = speculative and assembly.dims.speculation
        self._on_progress = on_progress
        self._most_requests = most_requests or assembly.dims.max_requests
        self._prefill_seconds = self._decode_seconds = 0.0
        self._draft_seconds, self._verify_seconds = list[float](), list[float]()

    def generate(self, prompts: Sequence[Sequence[int]], *, end_token: int | None = None) -> Generation:
        """Decode ``workload.max_new_tokens`` tokens of every prompt.

        Raises:
            TaskError: a prompt is empty, or prompt and output pass the context length; names the prompt.
        """
        requests = [self._request(index, list(prompt), end_token) for index, prompt in enumerate(prompts)]
        waiting, active = deque(requests), list[Request]()
        try:
            while waiting or active:
                self._admit(waiting, active)
                started = time.perf_counter()
                if any(not request.prefilled for request in active):
                    self._extend([request for request in active if not request.prefilled])
                    self._prefill_seconds += time.perf_counter() - started
                else:
                    self._decode(active)
                    self._decode_seconds += time.perf_counter() - started
                self._retire(active)
        finally:
            for request in active:
                self._assembly.pages.leave(request.slot)
        return Generation(
            outputs=[request.output for request in requests],
            statistics=[request.statistics for request in requests],
            prefill_seconds=self._prefill_seconds,
            decode_seconds=self._decode_seconds,
            draft_seconds=self._draft_seconds,
            verify_seconds=self._verify_seconds,
        )

    def _request(self, index: int, prompt: list[int], end_token: int | None) -> Request:
        length = len(prompt) + self._workload.max_new_tokens
        if not prompt:
            raise TaskError(f"prompt {index} is empty; give it at least one token")
        if length - 1 > self._dims.context_length:
            raise TaskError(
                f"prompt {index} has {len(prompt)} tokens and workload.max_new_tokens="
                f"{self._workload.max_new_tokens}, together more than pipeline.context_length="
                f"{self._dims.context_length}; shorten one or raise the other"
            )
        random = np.random.default_rng([self._workload.seed, index]) if self._dims.sampling else None
        return Request(
            index=index,
            prompt=prompt,
            max_new_tokens=self._workload.max_new_tokens,
            end_token=end_token,
            drafter=self._drafter(prompt),
            random=random,
        )

    def _drafter(self, prompt: list[int]) -> NgramDrafter | None:
        if not self._speculative:
            return None
        spec = self._assembly.config.speculative
        if not isinstance(spec, NgramSpec):
            raise TaskError(
                f"speculative={spec.kind} has no drafter to decode with; choose speculative=ngram, or "
                "task=plan to see its dimensions"
            )
        drafter = NgramDrafter(min_match=spec.min_match, max_match=spec.max_match)
        drafter.extend(prompt)
        return drafter

    def _admit(self, waiting: deque[Request], active: list[Request]) -> None:
        """Let requests join while there is a slot and room for their full length."""
        pages = self._assembly.pages
        reserved = sum(self._pages_to_come(request) for request in active)
        while waiting and pages.free_slots and len(active) < self._most_requests:
            needed = self._pages_to_come(waiting[0])
            if active and reserved + needed > pages.free_pages:
                return
            reserved += needed
            request = waiting.popleft()
            request.slot = pages.join()
            active.append(request)

    def _pages_to_come(self, request: Request) -> int:
        """Pages that a request will still take, at most."""
        page = self._dims.page_tokens
        full = len(request.prompt) + request.max_new_tokens + self._dims.max_width
        held = -(-request.prefix_len // page)
        return -(-min(full, self._dims.context_length) // page) - held

    def _extend(self, requests: list[Request]) -> None:
        """One chunk of as many prompts as one extend step holds."""
        room, chosen, chunks = self._dims.extend_rows, list[Request](), list[list[int]]()
        for request in requests[: self._dims.extend_requests]:
            if not room:
                break
            chunk = request.prompt[request.prefix_len : request.prefix_len + room]
            room -= len(chunk)
            chosen.append(request)
            chunks.append(chunk)
        result = self._assembly.replay(self._batch(Mode.EXTEND, chosen, chunks))
        for request, chunk, tokens in zip(chosen, chunks, result.tokens, strict=True):
            request.prefix_len += len(chunk)
            if request.prefilled:
                self._on_progress(len(request.commit(tokens)))

    def _decode(self, requests: list[Request]) -> None:
        """One step of all active requests: verify with drafts, or plain decode."""
        started = time.perf_counter()
        width = self._dims.verify_width(len(requests)) if self._speculative else None
        rows = [[request.anchor, *self._drafts(request, (width or 1) - 1)] for request in requests]
        drafted = time.perf_counter()
        mode = Mode.DECODE if width is None else Mode.TARGET_VERIFY
        result = self._assembly.replay(self._batch(mode, requests, rows, width))
        self._draft_seconds.append(drafted - started)
        self._verify_seconds.append(time.perf_counter() - drafted)
        for request, own, tokens in zip(requests, rows, result.tokens, strict=True):
            request.prefix_len += len(tokens)
            if self._speculative:
                request.statistics.add(drafts=len(own) - 1, accept_len=len(tokens))
            self._on_progress(len(request.commit(tokens)))

    def _drafts(self, request: Request, most: int) -> list[int]:
        """Proposals, never more than the output or the context still takes."""
        if request.drafter is None:
            return []
        room = self._dims.context_length - request.prefix_len - 1
        return request.drafter.propose(min(most, request.remaining - 1, room))

    def _batch(
        self, mode: Mode, requests: list[Request], rows: list[list[int]], width: int | None = None
    ) -> StepBatch:
        pages = self._assembly.pages
        updates = [
            update
            for request, own in zip(requests, rows, strict=True)
            for update in pages.extend(request.slot, request.prefix_len + len(own))
        ]
        sampling = self._dims.sampling
        return make_batch(
            self._dims,
            mode,
            slots=[request.slot for request in requests],
            prefix_lens=[request.prefix_len for request in requests],
            token_ids=rows,
            page_updates=updates,
            width=width,
            temperatures=[self._workload.temperature] * len(requests) if sampling else (),
            uniforms=[
                request.random.random(self._dims.max_width).tolist()
                for request in requests
                if request.random is not None
            ],
        )

    def _retire(self, active: list[Request]) -> None:
        for request in [request for request in active if request.finished]:
            self._assembly.pages.leave(request.slot)
            active.remove(request)
