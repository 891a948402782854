"""A recommendation in the words of this project's configuration and of other engines."""

from __future__ import annotations

import json
from collections.abc import Mapping


def schedule_override(schedule: Mapping[int, int | None]) -> str:
    """The override that decodes by this schedule, quoted for a shell; ``speculative=off`` where it has no count."""
    if all(count is None for count in schedule.values()):
        return "speculative=off"
    pairs = ",".join(
        f"[{requests},{'null' if count is None else count}]" for requests, count in schedule.items()
    )
    return f"'speculative.schedule=[{pairs}]'"


def sglang_flags(num_draft_tokens: int | None) -> str:
    """SGLang's flags for one count; it counts rows with the anchor, and its block size without."""
    if num_draft_tokens is None:
        return "(no --speculative-algorithm)"
    return (
        f"--speculative-algorithm DSPARK --speculative-dspark-block-size {num_draft_tokens - 1} "
        f"--speculative-num-draft-tokens {num_draft_tokens}"
    )


def vllm_flags(num_draft_tokens: int | None) -> str:
    """vLLM's flag for one count; it counts drafts, without the anchor."""
    if num_draft_tokens is None:
        return "(no --speculative-config)"
    value = json.dumps({"method": "dspark", "num_speculative_tokens": num_draft_tokens - 1})
    return f"--speculative-config '{value}'"
