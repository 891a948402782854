"""Numbers in documents are those of the committed records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dspark_factory.results import read_record
from tests.docs.attention_numbers import figures, layer_lines, stack_lines

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["bench-cpu", "bench-h200"])
def test_benchmark_numbers_come_from_their_record(name):
    record = read_record(ROOT / f"docs/records/{name}.json")
    page = (ROOT / "docs/benchmarks.md").read_text()
    section = next(part for part in page.split("\n## ") if f"records/{name}.json" in part)
    for speed in (record.tokens_per_second or {}).values():
        assert f"| {speed:.1f} |" in section
    for ratio in record.measurements["speed_ratios"].values():
        assert f"| {ratio['median']:.2f} | {ratio['low']:.2f} | {ratio['high']:.2f} |" in section
    assert f"`dspark {' '.join(record.config['requested'])}`" in section
    assert record.started_at[:10] in section
    assert record.lossless is True


def test_attention_numbers_come_from_their_record():
    record = read_record(ROOT / "docs/records/bench-attention-h200.json")
    section = (ROOT / "docs/benchmarks.md").read_text().split("\n## Attention on one H200", 1)[1]
    for line in (*layer_lines(record), *stack_lines(record)):
        assert line in section
    for name, figure in figures(record).items():
        assert figure in section, name
    assert record.started_at[:10] in section
    for override in record.config["requested"]:
        assert override in section


def test_the_readmes_ratios_are_medians_of_the_records():
    readme = (ROOT / "README.md").read_text()
    shown = [float(value) for value in re.findall(r"([\d.]+) times", readme)]
    records = [read_record(ROOT / f"docs/records/bench-{name}.json") for name in ("cpu", "h200")]
    pairs = ("without_speculation / transformers", "with_speculation / without_speculation")
    assert shown == [
        round(record.measurements["speed_ratios"][pair]["median"], 2) for pair in pairs for record in records
    ]
