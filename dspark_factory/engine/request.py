"""One request while it is decoded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dspark_factory.speculative.ngram import NgramDrafter
from dspark_factory.speculative.statistics import AcceptStatistics


@dataclass(kw_only=True)
class Request:
    """State of a request; its KV holds ``prefix_len`` tokens.

    Attributes:
        index: place among the prompts.
        prompt: prompt tokens, at least one.
        max_new_tokens: tokens to produce.
        end_token: token that ends it early, if any.
        slot: request slot while it is active.
        prefix_len: tokens whose KV is committed.
        output: produced tokens.
        drafter: proposes drafts; ``None`` decodes without speculation.
        random: source of this request's random numbers; independent of its neighbours.
    """

    index: int
    prompt: list[int]
    max_new_tokens: int
    end_token: int | None = None
    slot: int = -1
    prefix_len: int = 0
    output: list[int] = field(default_factory=list)
    drafter: NgramDrafter | None = None
    random: np.random.Generator | None = None
    statistics: AcceptStatistics = field(default_factory=AcceptStatistics)

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt lies in KV."""
        return self.prefix_len >= len(self.prompt)

    @property
    def anchor(self) -> int:
        """Latest token: produced, but not yet in KV."""
        return self.output[-1]

    @property
    def remaining(self) -> int:
        """Tokens still to produce."""
        return self.max_new_tokens - len(self.output)

    @property
    def finished(self) -> bool:
        """Whether it has all its tokens, or met its end token."""
        ended = bool(self.output) and self.output[-1] == self.end_token
        return ended or self.remaining <= 0

    def commit(self, tokens: list[int]) -> list[int]:
        """Append committed tokens, cut at the end token and at ``max_new_tokens``; returns what was kept."""
        kept = tokens[: self.remaining]
        if self.end_token in kept:
            kept = kept[: kept.index(self.end_token) + 1]
        self.output += kept
        if self.drafter is not None:
            self.drafter.extend(kept)
        return kept
