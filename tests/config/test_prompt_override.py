"""A prompt on the command line is text, whatever it looks like."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_factory.config import load_config
from dspark_factory.config.prompt_override import quote_prompts

LOOKS_LIKE = [
    "def main():",
    "a, b",
    "{a: b}",
    "[1,2]",
    "3",
    "True",
    "1e3",
    "  lead",
    "tail  ",
    "end\\",
    "it\\'s",
    "${x}",
]


@pytest.mark.parametrize("text", LOOKS_LIKE)
def test_text_that_looks_like_something_else_arrives_as_it_is(text):
    assert load_config([f"workload.prompt={text}"]).workload.prompt == text


@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=20))
def test_any_text_that_carries_no_quotes_of_its_own_arrives_as_it_is(text):
    if text == "null" or text[0] in "'\"":
        return
    assert load_config([f"workload.prompt={text}"]).workload.prompt == text


def test_quotes_and_choices_for_hydra_stay_as_the_user_wrote_them():
    arguments = ["workload.prompt='x, y'", 'workload.prompt="y"', "workload.prompt=null", "model=tiny"]
    assert quote_prompts(arguments) == arguments
    assert quote_prompts(["workload.prompt=a,b"], sweeping=True) == ["workload.prompt=a,b"]
