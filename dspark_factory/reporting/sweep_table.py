"""Tables of a sweep on the terminal: every row, the recommendation, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_factory.reporting.sweep_summary import (
    COLUMNS,
    SweepSummary,
    count_text,
    first_line,
    problem,
    row_cells,
    spread_text,
)
from dspark_factory.reporting.tables import simple_table
from dspark_factory.sweeps.flags import schedule_override, sglang_flags, vllm_flags
from dspark_factory.sweeps.recommend import Recommendation
from dspark_factory.sweeps.rows import SweepRow

_GAP = "  "
_STATUS = COLUMNS.index("status")
_PARTS = (
    ("Sweep: speeds", (*range(5), _STATUS)),
    ("Sweep: costs", (0, 1, 2, *range(5, _STATUS))),
)
_STYLES = {"ok": "green", "running": "yellow", "no effect": "yellow"}


def print_sweep(summary: SweepSummary, console: Console) -> None:
    """Every row, then the recommendation, what it leaves out, and the options that follow it."""
    console.print(rows_text(summary.rows, console.width), soft_wrap=True, end="")
    if summary.recommendation is None:
        console.print(Text(f"no recommendation: {first_line(summary.refusal or '')}"), soft_wrap=True)
    else:
        console.print(recommendation_table(summary.recommendation))
    for sentence in summary.left_out:
        console.print(Text(f"left out: {first_line(sentence)}"), soft_wrap=True)
    if summary.recommendation is not None:
        console.print()
        for line in option_lines(summary.recommendation):
            console.print(Text(line), soft_wrap=True)  # a command must stay one line to be pasted


def rows_text(rows: Sequence[SweepRow], width: int) -> Text:
    """One line per job and batch size; what does not count is marked, with the reason at the job's first.

    A line is never wrapped or cut, so that it can be searched. Where the numbers need more than ``width`` columns,
    they are in two tables, speeds and costs. Made by hand, because rich takes a second for a thousand rows.
    """
    cells = [COLUMNS, *map(row_cells, rows)]
    sizes = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    everything = tuple(range(len(COLUMNS)))
    fits = sum(sizes) + len(_GAP) * len(everything) <= width
    marks = list(_marks(rows))
    text = Text()
    for title, columns in (("Sweep", everything),) if fits else _PARTS:
        text.append(f"{title}\n", style="bold")
        for index, row in enumerate(cells):
            numbers = [_aligned(row[at], sizes[at], left=at == 0) for at in columns if at != _STATUS]
            text.append(_GAP.join(numbers), style="bold" if index == 0 else "")
            if _STATUS in columns:
                mark, style = marks[index]
                text.append(f"{_GAP}{mark}", style=style)
            text.append("\n")
            if index == 0:
                text.append("─" * min(width, sum(sizes[at] + len(_GAP) for at in columns)) + "\n")
        text.append("\n")
    return text


def _marks(rows: Sequence[SweepRow]) -> Iterator[tuple[str, str]]:
    """Status with its style: of the header, then of each row."""
    yield COLUMNS[_STATUS], "bold"
    before = None
    for row in rows:
        status = row_cells(row)[_STATUS]
        why = problem(row) if row.job != before else None
        before = row.job
        yield first_line(why) if why else status, _STYLES.get(status, "red")


def _aligned(cell: str, size: int, *, left: bool) -> str:
    padding = " " * (size - cell_len(cell))
    return cell + padding if left else padding + cell


def recommendation_table(recommendation: Recommendation) -> Table:
    """The count to use at each batch size, and what it gains."""
    table = simple_table(
        "Recommendation",
        ("requests", "right"),
        ("num_draft_tokens", "right"),
        ("tokens/s", "right"),
        ("gain over off", "right"),
        ("as fast", "left"),
    )
    for cells in choice_cells(recommendation):
        table.add_row(*cells)
    return table


def choice_cells(recommendation: Recommendation) -> Iterator[tuple[str, ...]]:
    """Text of each choice: batch size, count, speed, gain over speculation off, counts that tie with it."""
    for choice in recommendation.choices:
        yield (
            str(choice.requests),
            count_text(choice.num_draft_tokens),
            spread_text(choice.tokens_per_second),
            "not measured" if choice.gain is None else f"{choice.gain:.2f}x",
            ", ".join(map(count_text, choice.tied)),
        )


def option_lines(recommendation: Recommendation) -> Iterator[str]:
    """The override that decodes by the schedule, and other engines' flags for each of its counts."""
    yield f"decode by it: dspark {schedule_override(recommendation.schedule)}"
    for label, flags in engine_flags(recommendation):
        yield f"{label}: {flags}"


def engine_flags(recommendation: Recommendation) -> Iterator[tuple[str, str]]:
    """Engine with the count, and its flags, for every distinct count of the schedule."""
    for count in dict.fromkeys(recommendation.schedule.values()):
        yield f"SGLang, num_draft_tokens {count_text(count)}", sglang_flags(count)
        yield f"vLLM, num_draft_tokens {count_text(count)}", vllm_flags(count)
