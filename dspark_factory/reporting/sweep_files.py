"""Rows of a sweep as flat files for other programs: CSV, and Parquet by pyarrow."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_factory.reporting.sweep_summary import MissingPackage, printable
from dspark_factory.sweeps.rows import SweepRow

TEXT, INTEGER, DECIMAL, TRUTH = "string", "int64", "float64", "bool"
"""Kinds of columns, by their names in Arrow."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name with its unit, its kind, and where its value comes from."""

    name: str
    kind: str
    value: Callable[[SweepRow], Any]

    def cell(self, row: SweepRow) -> str | int | float | bool | None:
        """The row's value; ``None`` where it has none of this kind."""
        value = self.value(row)
        if value is None:
            return None
        if self.kind == TEXT:
            return printable(str(value))
        if self.kind == TRUTH:
            return bool(value)
        if not isinstance(value, int | float):
            return None
        return int(value) if self.kind == INTEGER else float(value)


def columns_of(rows: Sequence[SweepRow]) -> list[Column]:
    """Columns of both files; positions and providers are those that any row has."""
    columns = [
        Column("job", TEXT, lambda row: row.job),
        Column("task", TEXT, lambda row: row.task),
        Column("status", TEXT, lambda row: row.status.value),
        Column("failure", TEXT, lambda row: row.failure),
        Column("without_effect", TEXT, lambda row: "; ".join(row.without_effect) or None),
        Column("overrides", TEXT, lambda row: " ".join(row.overrides) or None),
        Column("device", TEXT, lambda row: row.device),
        Column("requests", INTEGER, lambda row: row.requests),
        # Without it, speculation off and a count that nobody knows would look alike.
        Column("speculation", TRUTH, _speculation),
        Column("num_draft_tokens", INTEGER, lambda row: row.num_draft_tokens),
        *_spread("tokens_per_second"),
        *_spread("baseline_tokens_per_second"),
        Column("accept_length", DECIMAL, lambda row: row.accept_length),
        Column("accept_length_low", DECIMAL, lambda row: (row.accept_length_interval or (None, None))[0]),
        Column("accept_length_high", DECIMAL, lambda row: (row.accept_length_interval or (None, None))[1]),
    ]
    positions = max((len(row.conditional_acceptance) for row in rows), default=0)
    columns += [
        Column(f"conditional_acceptance_{index + 1}", DECIMAL, _acceptance_at(index))
        for index in range(positions)
    ]
    columns += [
        *_spread("verify_milliseconds"),
        *_spread("draft_milliseconds"),
        Column("startup_seconds", DECIMAL, lambda row: row.startup_seconds),
        Column("nbytes", INTEGER, lambda row: row.nbytes),
        Column("graph_nbytes", INTEGER, lambda row: row.graph_nbytes),
    ]
    providers = dict.fromkeys(name for row in rows for name in row.nbytes_by_provider or ())
    columns += [Column(f"nbytes.{printable(name)}", INTEGER, _nbytes_of(name)) for name in providers]
    return columns


def write_csv(rows: Sequence[SweepRow], path: Path | str) -> None:
    """Write the rows as UTF-8 CSV with a header; text that a spreadsheet would run is quoted with ``'``."""
    columns = columns_of(rows)
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        writer.writerows([_csv_cell(column.cell(row)) for column in columns] for row in rows)


def write_parquet(rows: Sequence[SweepRow], path: Path | str) -> None:
    """Write the columns of the CSV as Parquet, with their types.

    Raises:
        MissingPackage: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingPackage("Parquet needs pyarrow: pip install 'dspark-factory[parquet]'") from error
    columns = columns_of(rows)
    arrays = [
        pyarrow.array([column.cell(row) for row in rows], type=pyarrow.type_for_alias(column.kind))
        for column in columns
    ]
    parquet.write_table(pyarrow.table(arrays, names=[column.name for column in columns]), Path(path))


def _csv_cell(value: Any) -> Any:
    # A record may come from anyone, and a spreadsheet runs such text as a formula.
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def _spread(name: str) -> Iterator[Column]:
    for part in ("median", "low", "high", "noise"):
        yield Column(f"{name}_{part}", DECIMAL, _part_of(name, part))


def _part_of(name: str, part: str) -> Callable[[SweepRow], Any]:
    return lambda row: getattr(getattr(row, name), part, None)


def _acceptance_at(index: int) -> Callable[[SweepRow], Any]:
    return lambda row: row.conditional_acceptance[index] if index < len(row.conditional_acceptance) else None


def _nbytes_of(provider: str) -> Callable[[SweepRow], Any]:
    return lambda row: (row.nbytes_by_provider or {}).get(provider)


def _speculation(row: SweepRow) -> bool | None:
    if row.num_draft_tokens is None and row.requests is None:
        return None
    return row.num_draft_tokens is not None
