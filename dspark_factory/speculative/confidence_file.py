"""The JSON file of confidence temperatures, one per draft position."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from dspark_factory.errors import CalibrationError

FORMAT, VERSION = "dspark-confidence-temperatures", 1
KEYS = ("format", "version", "temperatures", "positions", "notes")
WANTED = (
    f'write JSON like {{"format": "{FORMAT}", "version": {VERSION}, "temperatures": [1.2, 1.4], "positions": 2}}, '
    'with free "notes" where wanted'
)


def write_temperatures(path: Path | str, temperatures: Sequence[float], *, notes: str = "") -> None:
    """Write temperatures, that of the first draft first; ``notes`` are free text and left out where empty.

    Raises:
        CalibrationError: there is none, or one is no finite number above 0; the file is not touched.
    """
    numbers = [float(value) for value in temperatures]
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "temperatures": numbers,
        "positions": len(numbers),
    }
    if reasons := list(_reasons(document, block_size=0)):
        raise CalibrationError(f"{path} is not written: {'; '.join(reasons)}")
    text = json.dumps(document | ({"notes": notes} if notes else {}), indent=2)
    Path(path).write_text(text + "\n", encoding="utf-8")


def read_temperatures(path: Path | str, block_size: int) -> tuple[float, ...]:
    """Temperatures of the first ``block_size`` draft positions; those of further positions are not used.

    Raises:
        CalibrationError: the file cannot be read or is wrong; the message names every reason.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CalibrationError(f"{path} cannot be read: {reason}; name a file that exists") from error
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"{path} is no JSON: {error}; {WANTED}") from error
    if not isinstance(document, dict):
        raise CalibrationError(f"{path} holds no JSON object; {WANTED}")
    if reasons := list(_reasons(document, block_size)):
        raise CalibrationError(f"{path} cannot be used: {'; '.join(reasons)}; {WANTED}")
    return tuple(float(value) for value in document["temperatures"][:block_size])


def _reasons(document: dict[str, Any], block_size: int) -> Iterator[str]:
    for name, wanted in (("format", FORMAT), ("version", VERSION)):
        value = document.get(name)
        if value != wanted or isinstance(value, bool):
            yield f'"{name}" is {value!r} and must be {wanted!r}'
    for name in document:
        if name not in KEYS:
            yield f'"{name}" is unknown'
    temperatures = document.get("temperatures")
    if not isinstance(temperatures, list) or not temperatures:
        yield '"temperatures" is no list of at least one number'
        return
    for position, value in enumerate(temperatures, 1):
        if not _is_temperature(value):
            yield f"the temperature of position {position} is {value!r}, no finite number above 0"
    positions = document.get("positions")
    if positions != len(temperatures) or isinstance(positions, bool):
        yield f'"positions" is {positions!r}, and {len(temperatures)} temperatures are listed'
    if len(temperatures) < block_size:
        yield f"{len(temperatures)} temperatures are listed, and the block has {block_size} drafts"


def _is_temperature(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value) and value > 0
    except OverflowError:  # an integer beyond fp64
        return False
