"""What a step is on the host, inside the captured region, and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from dspark_factory.attention.rows import StepRows
    from dspark_factory.planning.graph_keys import GraphKey


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """Host-side description of one step, padded to its graph key.

    Every sequence has one entry per real request; padding is the difference to ``key.requests``.

    Attributes:
        key: the graph that will run.
        slots: request slot of each request.
        prefix_lens: tokens already committed before this step's rows.
        row_lens: rows of each request that count; in a uniform layout the others are padding rows.
        token_ids: the tokens of each request's rows, ``row_lens[r]`` of them.
        page_updates: ``(slot, page index, page)`` entries that change in the page table.
        temperatures: softmax temperature of each request; 0 is greedy. Empty when sampling is off.
        uniforms: numbers in [0, 1) of each request: one for the bonus token, then one per draft.
    """

    key: GraphKey
    slots: Sequence[int]
    prefix_lens: Sequence[int]
    row_lens: Sequence[int]
    token_ids: Sequence[Sequence[int]]
    page_updates: Sequence[tuple[int, int, int]] = ()
    temperatures: Sequence[float] = ()
    uniforms: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """What a provider's ``compute`` sees inside the captured region; everything lies on the device.

    Attributes:
        key: the graph being run; constant for a capture.
        rows: row tables of the step.
        target_tokens: ``[rows]`` int32, the target's choice after each row.
        accept_lens: ``[requests]`` int32 committed tokens per request, bonus included; ``None`` outside verify.
    """

    key: GraphKey
    rows: StepRows
    target_tokens: Tensor
    accept_lens: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a provider's ``observe`` sees on the host after a step."""

    batch: StepBatch
    accept_lens: Sequence[int]
