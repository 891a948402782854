"""The table of field reports says what the tests say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| .* \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"Field reports? (\d+)(?: and (\d+))?")


def covered_by_tests() -> dict[int, set[str]]:
    covered: dict[int, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for numbers in NAMED.findall(path.read_text()):
            for number in filter(None, numbers):
                covered.setdefault(int(number), set()).add(path.relative_to(ROOT).as_posix())
    return covered


def test_every_row_names_exactly_the_tests_that_name_it():
    rows = {int(number): cell for number, cell in ROW.findall((ROOT / "docs/field-reports.md").read_text())}
    covered = covered_by_tests()
    assert set(covered) <= set(rows)
    for number, cell in rows.items():
        assert set(re.findall(r"`(tests/[^`]+)`", cell)) == covered.get(number, set()), f"row {number}"
        assert cell.strip()
