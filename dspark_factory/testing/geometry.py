"""The configurations a plugin is checked on: the shipped checkpoint, small capacities, every kind of bucket."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache

from dspark_factory.config import load_config
from dspark_factory.config.schema import Config

CONTEXT_FACTOR = 8
"""How much longer the context gets when growth is looked for."""

_CONTEXT_LENGTH = 512

CAPACITY = (
    "task=build",
    "pipeline.max_requests=3",
    "pipeline.capture_requests=[1,3]",
    f"pipeline.context_length={_CONTEXT_LENGTH}",
    "pipeline.extend_rows=64",
    "pipeline.warmup_runs=1",
    "pipeline.bucket_policy=eager",
)
LONGER_CONTEXT = f"pipeline.context_length={_CONTEXT_LENGTH * CONTEXT_FACTOR}"

FULL = (
    *CAPACITY,
    "speculative=ngram",
    "speculative.num_draft_tokens=2",
    "speculative.draft_token_candidates=[4]",
    "speculative.verify_layout=ragged",
)
"""The largest candidate is not the active one, and both layouts are captured."""

SITUATIONS: dict[str, tuple[str, ...]] = {
    "speculation off": (*CAPACITY, "speculative=off"),
    "num_draft_tokens=null": (*CAPACITY, "speculative=ngram", "speculative.num_draft_tokens=null"),
    "2 draft tokens, candidate 4, ragged": FULL,
    "4 draft tokens": (*CAPACITY, "speculative=ngram", "speculative.num_draft_tokens=4"),
    "sampling": (*FULL, "workload.temperature=1"),
}
"""What a gate must answer for."""


def configuration(overrides: Sequence[str]) -> Config:
    """A configuration of its own; composing one takes a while, so equal overrides are composed once."""
    return deepcopy(_composed(tuple(overrides)))


@lru_cache(maxsize=64)
def _composed(overrides: tuple[str, ...]) -> Config:
    return load_config(overrides)
