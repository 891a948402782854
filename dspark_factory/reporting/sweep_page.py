"""The report of a sweep as one page that needs nothing else: no script, no network, dark and light."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dspark_factory.reporting.sweep_plots import TITLES, SweepFigure, shown_of
from dspark_factory.reporting.sweep_summary import (
    COLUMNS,
    MissingPackage,
    SweepSummary,
    printable,
    problem,
    row_cells,
)
from dspark_factory.reporting.sweep_table import choice_cells, engine_flags
from dspark_factory.sweeps.flags import schedule_override


def sweep_page(summary: SweepSummary, figures: Mapping[str, SweepFigure]) -> str:
    """The page as HTML; every value of a record is text on it, whatever it contains.

    Args:
        summary: of the sweep.
        figures: by name, as :func:`~dspark_factory.reporting.sweep_plots.figures` makes them.

    Raises:
        MissingPackage: jinja2 is not installed.
    """
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise MissingPackage("the page needs jinja2: pip install 'dspark-factory[report]'") from error

    def finalize(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dspark_factory", "templates/report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template("sweep.html.jinja").render(
        summary=summary,
        jobs=len({row.job for row in summary.rows} | {item.job for item in summary.unreadable}),
        problems=summary.problems,
        choices=list(choice_cells(summary.recommendation)) if summary.recommendation else [],
        override=schedule_override(summary.recommendation.schedule) if summary.recommendation else "",
        flags=list(engine_flags(summary.recommendation)) if summary.recommendation else [],
        # The figures are made here and escape their texts themselves.
        figures=[(TITLES[name], Markup(figure.svg)) for name, figure in figures.items()],
        shown=shown_of(figures),
        columns=[*COLUMNS, "overrides"],
        rows=list(_rows(summary)),
        environment=_environment(summary.environment),
    )


def _rows(summary: SweepSummary) -> Iterator[tuple[list[str], str, str, str]]:
    """Cells of each row, its kind, its status, and its overrides."""
    for row in summary.rows:
        *cells, status = row_cells(row)
        kind = "good" if problem(row) is None else "open" if status in {"running", "no effect"} else "bad"
        yield cells, kind, status, " ".join(row.overrides)


def _environment(found: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str]]:
    """Property and value; where jobs differ, every value with the number of jobs that had it."""
    for name, counts in found.items():
        if len(counts) == 1:
            yield name, next(iter(counts))
        else:
            yield name, "; ".join(f"{value} ({count} jobs)" for value, count in counts.items())
