"""What an option takes, in words."""

from __future__ import annotations

import pytest

from dspark_factory.config import schema
from dspark_factory.config.expected import element, expected, hints, schema_fields


@pytest.mark.parametrize(
    ("kind", "option", "words"),
    [
        (schema.PipelineSpec, "max_requests", "an integer of at least 1"),
        (schema.PipelineSpec, "kv_pool_tokens", "an integer of at least 1, or null"),
        (schema.PipelineSpec, "bucket_policy", "one of error, eager, split"),
        (schema.PipelineSpec, "capture_requests", "a list of integers, as in [1,2,4]"),
        (schema.DeviceSpec, "memory_gib", "a number above 0, or null"),
        (schema.WorkloadSpec, "ignore_end", "true or false"),
        (schema.WorkloadSpec, "prompt", "text, or null"),
        (schema.ModelSpec, "rope_scaling", "a mapping, as in {name: value}, or null"),
        (schema.ModelSpec, "dspark", "a mapping with block_size, target_layer_ids, markov_rank, or null"),
    ],
)
def test_types_and_bounds_become_words(kind: type, option: str, words: str) -> None:
    assert expected(f"any.{option}", hints(kind)[option], schema_fields(kind)[option].metadata) == words


def test_the_draft_token_count_says_what_null_means() -> None:
    kind = schema.SpeculativeSpec
    text = expected("speculative.num_draft_tokens", hints(kind)["num_draft_tokens"], {})
    assert text == "null to switch speculation off, or an integer of at least 2"


def test_elements_of_lists_and_mappings() -> None:
    assert element(list[int]) is int
    assert element(dict[str, float] | None) is float
    assert element(int) is None
