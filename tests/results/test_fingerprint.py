"""When two jobs would measure the same."""

from __future__ import annotations

import pytest

from dspark_factory.config import load_config
from dspark_factory.registry import Origin
from dspark_factory.results import fingerprint as module
from dspark_factory.results.fingerprint import fingerprint


def of(*overrides: str) -> str:
    return fingerprint(load_config(overrides))


def test_everything_that_changes_a_shape_or_a_result_changes_it():
    """Field report 23: draft counts, layout, buffers, model, device and workload are all in it."""
    variants = [
        (),
        *((f"speculative.num_draft_tokens={count}",) for count in (3, 5, 7)),
        ("speculative.verify_layout=ragged",),
        ("speculative=off",),
        ("buffers.logits.enabled=true",),
        ("device.num_threads=1",),
        ("workload.seed=1",),
        ("task=measure",),
        ("task=measure", "task.repeats=2"),
    ]
    assert len({of(*variant) for variant in variants}) == len(variants)


@pytest.mark.parametrize("shown", ["output=json", "task.show_text=false"])
def test_what_is_only_shown_does_not(shown):
    assert of(shown) == of()


def test_another_version_of_a_provider_changes_it(monkeypatch):
    before = of()
    monkeypatch.setattr(module, "origin_of", lambda plugin: Origin("dspark-factory", "99"))
    assert of() != before
