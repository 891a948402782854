"""What a predicted recommendation prints: speeds, the choice at every batch size, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dspark_factory.reporting.sweep_summary import count_text
from dspark_factory.reporting.sweep_table import option_lines
from dspark_factory.reporting.tables import simple_table
from dspark_factory.sweeps.recommend import Recommendation


def print_recommendation(
    recommendation: Recommendation, predicted: Mapping[str, Any], console: Console
) -> None:
    """Every predicted row, what was left out or assumed, and the options that follow the recommendation.

    Args:
        recommendation: made from these predictions.
        predicted: what the record keeps of them: predicted, steps, schedule, left_out and notes.
        console: to print on.
    """
    console.print(predictions_table(recommendation, predicted))
    for line in _lines(recommendation, predicted):
        # Whole lines, whatever the width: they are to be copied into a shell.
        console.print(Text(line), soft_wrap=True)


def predictions_table(recommendation: Recommendation, predicted: Mapping[str, Any]) -> Table:
    """One row per batch size and count; the recommended ones are marked."""
    table = simple_table(
        f"Predicted decode speed, from {predicted['steps']:,} steps",
        ("requests", "right"),
        ("num_draft_tokens", "right"),
        ("tokens/s", "right"),
        ("accept length", "right"),
        ("gain over off", "right"),
        ("", "left"),
    )
    chosen = {(choice.requests, choice.num_draft_tokens) for choice in recommendation.choices}
    for row in predicted["predicted"]:
        table.add_row(
            str(row["requests"]),
            count_text(row["num_draft_tokens"]),
            f"{row['tokens_per_second']:,.1f} ± {row['noise'] * 100:.1f} %",
            f"{row['accept_length']:.2f}",
            "not timed" if row["gain"] is None else f"{row['gain']:.2f}x",
            "recommended" if (row["requests"], row["num_draft_tokens"]) in chosen else "",
        )
    return table


def _lines(recommendation: Recommendation, predicted: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"left out: {reason}" for reason in predicted["left_out"])
    yield from (f"note: {note}" for note in predicted["notes"])
    yield ""
    yield from option_lines(recommendation)
