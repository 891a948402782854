"""A user's own table of step costs, in milliseconds by batch size and draft-token count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_factory.config.rules import MAX_DRAFT_TOKENS
from dspark_factory.sweeps.input_files import (
    InputFileError,
    csv_rows,
    integer,
    milliseconds,
    read_text,
    require_none,
)

COLUMNS = ("requests", "num_draft_tokens", "milliseconds")
KEYS = {"verify": COLUMNS, "draft": COLUMNS[1:], "decode": (COLUMNS[0], COLUMNS[2])}
"""Lists of the JSON form, and the keys of their entries."""
WANTED = (
    'write JSON like {"unit": "milliseconds", "verify": [{"requests": 1, "num_draft_tokens": 6, "milliseconds": '
    '12.3}]}, with "draft" and "decode" beside "verify" where measured, or CSV with the columns '
    "requests,num_draft_tokens,milliseconds"
)


@dataclass(kw_only=True)
class CostTable:
    """Milliseconds of steps.

    Attributes:
        verify: of a verify step, by (requests, num_draft_tokens); a count includes the anchor.
        draft: of drafting for a step, by num_draft_tokens; empty where drafting was not timed.
        decode: of a step without speculation, by requests.
    """

    verify: dict[tuple[int, int], float] = field(default_factory=dict)
    draft: dict[int, float] = field(default_factory=dict)
    decode: dict[int, float] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What had to be assumed, as sentences."""
        return () if self.draft else ("the cost table has no costs of drafting; they count as nothing",)

    def add(self, part: str, values: dict[str, Any]) -> None:
        """Add one entry, in JSON or CSV values.

        Raises:
            ValueError: it is malformed, or was given before.
        """
        keys = KEYS[part]
        if set(values) != set(keys):
            raise ValueError(f"it must have {', '.join(keys)}, and has {', '.join(values) or 'nothing'}")
        time = milliseconds(values["milliseconds"], zero=part == "draft")
        if part == "draft":
            count = integer(values.get("num_draft_tokens"), "num_draft_tokens", 2, MAX_DRAFT_TOKENS)
            _set(self.draft, count, time, f"num_draft_tokens={count}")
            return
        requests = integer(values["requests"], "requests", 1)
        given = values.get("num_draft_tokens")
        count = 1 if given in (None, "") else integer(given, "num_draft_tokens", 1, MAX_DRAFT_TOKENS)
        if count == 1:
            _set(self.decode, requests, time, f"requests={requests} without speculation")
        else:
            name = f"requests={requests} with num_draft_tokens={count}"
            _set(self.verify, (requests, count), time, name)


def read_cost_table(path: Path | str) -> CostTable:
    """Step costs from JSON or CSV; a count of 1, or none, is a step without speculation.

    Raises:
        InputFileError: the file cannot be read, times no verify step, or has bad entries; all of them at once.
    """
    text = read_text(path)
    table, bad = CostTable(), []
    is_json = text.lstrip().startswith(("{", "[")) or Path(path).suffix == ".json"
    for where, part, values in _json_entries(text, path) if is_json else _csv_entries(text, path):
        try:
            if isinstance(values, str):
                raise ValueError(values)
            table.add(part, values)
        except ValueError as error:
            bad.append(f"{where}: {error}")
    if not bad:
        bad += _gaps(table)
    require_none(bad, path, WANTED)
    return table


def _gaps(table: CostTable) -> Iterator[str]:
    if not table.verify:
        yield "it times no verify step with num_draft_tokens of at least 2"
    for count in sorted({count for _, count in table.verify} - set(table.draft)) if table.draft else ():
        yield f'"draft" lacks num_draft_tokens={count}, which "verify" has'


def _json_entries(text: str, path: Path | str) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{path} is no JSON: {error}; {WANTED}") from error
    if not isinstance(document, dict):
        raise InputFileError(f"{path} holds no JSON object; {WANTED}")
    unit = document.pop("unit", "milliseconds")
    if unit != "milliseconds":
        raise InputFileError(f'{path} has "unit": {unit!r}; write the times in milliseconds')
    for part, entries in document.items():
        if part not in KEYS or not isinstance(entries, list):
            raise InputFileError(f'{path}: "{part}" is no list of verify, draft or decode steps; {WANTED}')
        for index, values in enumerate(entries):
            problem = f"{values!r} is no object with {', '.join(KEYS[part])}"
            yield f"{part}[{index}]", part, values if isinstance(values, dict) else problem


def _csv_entries(text: str, path: Path | str) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
    names: list[str] | None = None
    for number, cells in csv_rows(text, path):
        if names is None:
            names = cells
            if sorted(names) != sorted(COLUMNS):
                yield f"line {number}", "verify", f"the columns are {', '.join(names)}"
                return
        elif len(cells) == len(names):
            yield f"line {number}", "verify", dict(zip(names, cells, strict=True))
        else:
            problem = f"it has {len(cells)} cells, and the columns are {', '.join(names)}"
            yield f"line {number}", "verify", problem


def _set(times: dict[Any, float], key: Any, time: float, name: str) -> None:
    if key in times:
        raise ValueError(f"{name} is given twice")
    times[key] = time
