"""Reading the files that a user brings: all bad lines are told at once."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from dspark_factory.errors import DsparkError

SHOWN = 5
"""Bad lines told in full; the others are counted."""


class InputFileError(DsparkError):
    """A user's log or table cannot be used; the message names the file and its bad lines."""


def read_text(path: Path | str) -> str:
    """The file's text, without a byte-order mark.

    Raises:
        InputFileError: there is no such file, it cannot be opened, or it is not UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputFileError(f"{path} cannot be read: {reason}; name a text file that exists") from error
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path} is no UTF-8 text; save it as UTF-8") from error


def csv_rows(text: str, path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every line that is not blank.

    Raises:
        InputFileError: the text is no CSV at all.
    """
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputFileError(f"{path} is no CSV: line {reader.line_num}: {error}") from error


def require_none(bad: list[str], path: Path | str, wanted: str) -> None:
    """Refuse the file if any of its lines was bad.

    Args:
        bad: one text per bad line: where, and what is wrong.
        path: the file, for the message.
        wanted: what a good line looks like.

    Raises:
        InputFileError: with the first bad lines in full and the number of the others.
    """
    if not bad:
        return
    told = "; ".join(bad[:SHOWN])
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    raise InputFileError(f"{path} cannot be used: {told}{more}; {wanted}")


def integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """A whole number within bounds, from JSON or from a CSV cell.

    Raises:
        ValueError: it is none; the message names it.
    """
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        number = int(value)
        if number < low or (high is not None and number > high):
            raise ValueError
    except ValueError:
        raise ValueError(f"{name}={value!r} is no integer {bounds}") from None
    return number


def milliseconds(value: Any, *, zero: bool = False) -> float:
    """A duration above zero, from JSON or from a CSV cell.

    Args:
        value: to read.
        zero: allow zero too.

    Raises:
        ValueError: it is none.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        if not isfinite(number) or number < 0 or (number == 0 and not zero):
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(
            f"milliseconds={value!r} is no number {'of at least' if zero else 'above'} 0"
        ) from None
    return number
