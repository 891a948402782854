"""Knobs that took no effect: requested values beside effective ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dspark_factory.results import Record

KNOBS = {
    "speculative.num_draft_tokens": "num_draft_tokens",
    "speculative.block_size": "block_size",
    "pipeline.max_requests": "max_requests",
    "pipeline.context_length": "context_length",
    "pipeline.extend_rows": "extend_rows",
    "device.kind": "device",
    "device.dtype": "dtype",
    "device.kv_dtype": "kv_dtype",
    "device.num_threads": "num_threads",
    "backend.kind": "backend",
}
"""Options whose effective value a record states, and its name there."""


def without_effect(record: Record) -> Iterator[str]:
    """A sentence for every option that was set and whose effective value is another."""
    full = record.config.get("full")
    if not isinstance(full, dict) or not record.effective:
        return
    for option, name in KNOBS.items():
        wanted = _at(full, option)
        if wanted is None or name not in record.effective:
            continue
        effective = record.effective[name]
        if wanted != effective:
            yield f"{option}={wanted} took no effect: the job ran with {_shown(effective)}"
    if record.effective.get("speculation") and _offered_nothing(record):
        yield (
            f"speculative.num_draft_tokens={record.effective.get('num_draft_tokens')} took no effect: no draft was "
            "offered in any step"
        )


def _offered_nothing(record: Record) -> bool:
    batches = record.measurements.get("batches")
    if not isinstance(batches, list) or not batches:
        return False
    return all(batch.get("num_draft_tokens") and not batch.get("drafts_offered") for batch in batches)


def _at(values: dict[str, Any], option: str) -> Any:
    found: Any = values
    for part in option.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
