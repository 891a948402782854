"""The page of options is what the schema says now."""

from __future__ import annotations

from pathlib import Path

from dspark_factory.config.reference import reference

PAGE = Path(__file__).parents[2] / "docs/configuration.md"


def test_the_page_is_fresh():
    assert PAGE.read_text() == reference(), (
        "run: python -m dspark_factory.config.reference > docs/configuration.md"
    )


def test_every_option_says_what_it_means():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `speculative.")]
    assert len(rows) >= 8
    assert all(not row.endswith("|  |") for row in PAGE.read_text().splitlines())
