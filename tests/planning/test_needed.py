"""A configuration whose steps could not run is refused in the plan."""

from __future__ import annotations

import pytest

from dspark_factory.config import load_config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.needed import NEEDED
from dspark_factory.planning.plan import plan

EVERYTHING = ["speculative.verify_layout=ragged", "workload.temperature=0.5"]


@pytest.mark.parametrize("name", NEEDED)
def test_switching_a_needed_provider_off_is_refused_by_name(name):
    config = load_config([*EVERYTHING, f"buffers.{name}.enabled=false"])
    with pytest.raises(ConfigError, match=rf"buffers\.{name} is off \(buffers\.{name}\.enabled=false\)"):
        plan(config)


def test_selecting_no_buffers_names_every_needed_one():
    with pytest.raises(ConfigError) as caught:
        plan(load_config([*EVERYTHING, "buffers=[]"]))
    assert [reason.split()[0].removeprefix("buffers.") for reason in caught.value.reasons] == list(NEEDED)


def test_what_a_configuration_does_not_need_may_be_off():
    off = ["extend_seq_lens", "accept_lens", "extend_start_loc", "sampling_inputs"]
    plan(load_config(["speculative=off", *(f"buffers.{name}.enabled=false" for name in off)]))
