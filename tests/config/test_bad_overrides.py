"""Every bad override gets one clear line, and all problems are told at once."""

from __future__ import annotations

import pytest

from dspark_factory.config import load_config
from dspark_factory.errors import ConfigError


def reasons(*overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides)
    assert all("\n" not in reason and reason.strip() for reason in refused.value.reasons)
    return refused.value.reasons


def only_reason(*overrides: str) -> str:
    (reason,) = reasons(*overrides)
    return reason


@pytest.mark.parametrize("text", ["None", "true", "4.0", "-3", "0", "1", "", "four", "[4]"])
def test_a_draft_token_count_that_is_none_is_told_what_to_write(text: str) -> None:
    """Field report 49: None, true, 4.0, -3 and 0 get clear errors that suggest null."""
    reason = only_reason(f"speculative.num_draft_tokens={text}")
    start = f"speculative.num_draft_tokens={text}: write null to switch speculation off, or an integer"
    assert reason.startswith(f"{start} of at least 2")


@pytest.mark.parametrize(
    "override",
    [
        "speculative.num_draft_token=5",
        "+speculative.num_draft_token=5",
        "++speculative.num_draft_token=5",
    ],
)
def test_a_misspelt_option_is_refused_whatever_its_prefix(override: str) -> None:
    """Field report 50: unknown keys are refused even with +, and + is never advised."""
    reason = only_reason(override)
    assert reason == (
        "speculative.num_draft_token: speculative has no option 'num_draft_token'; "
        "did you mean speculative.num_draft_tokens?"
    )
    assert "+" not in reason


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("++speculative.zzz=1", ("speculative.zzz", "no option 'zzz'", "options: kind, num_draft_tokens")),
        ("+foo=1", ("foo", "no group or option 'foo'", "known: backend")),
        ("+foo={a: {b: 1}}", ("no group or option 'foo'",)),
        ("modle=tiny", ("did you mean model?", "Options: checkpoint, tiny, v4_flash, v4_pro")),
        ("+modle=tiny", ("did you mean model?",)),
        ("num_draft_tokens=4", ("it is speculative.num_draft_tokens",)),
        ("pipeline.num_draft_tokens=4", ("it is speculative.num_draft_tokens",)),
        ("task.repeats=4", ("it is an option of task=bench",)),
        ("schema=foo", ("no group or option 'schema'",)),
        ("buffers.logits.enable=true", ("did you mean buffers.logits.enabled?",)),
        ("+model.dspark.blocksize=5", ("model.dspark is null",)),
        ("pipeline={max_request: 3}", ("did you mean pipeline.max_requests?",)),
        ("pipeline.max_requests.deep=3", ("pipeline.max_requests is a value",)),
        ("model/size=3", ("model has no option 'size'",)),
        ("model.hidden=3", ("did you mean model.hidden_size?",)),
    ],
)
def test_an_unknown_option_is_told_its_nearest_name_or_its_place(
    override: str, words: tuple[str, ...]
) -> None:
    reason = only_reason(override)
    for part in words:
        assert part in reason


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model=v4flash", ("did you mean v4_flash?", "checkpoint, tiny, v4_flash, v4_pro")),
        ("buffers=[defalt]", ("did you mean default?",)),
        ("buffers=[default,defalt]", ("buffers has no 'defalt'",)),
        ("model=null", ("model takes the name of an option", "tiny")),
        ("backend=null", ("backend takes the name of an option", "reference")),
        ("model=3", ("model takes the name of an option",)),
        ("model=", ("model takes the name of an option",)),
        ("model=[tiny,v4_flash]", ("model takes one option", "tiny")),
        ("~buffers", ("write buffers=[]",)),
        ("+model=tiny", ("model is chosen already; write model=tiny",)),
        ("++model=tiny", ("write model=tiny",)),
        ("model@elsewhere=tiny", ("write model=NAME",)),
        ("hydra/launcher=jobli", ("hydra/launcher/jobli",)),
        ("hydra.foo=1", ("hydra.foo",)),
        ("device.kind=gpu", ("device.kind=gpu", "one of cpu, cuda")),
        ("output=jsn", ("one of text, json",)),
        ("buffers.foo.enabled=false", ("buffer provider 'foo' is unknown", "extend_seq_lens")),
        ("+buffers.foo={enabled: true}", ("buffer provider 'foo' is unknown",)),
        ("+buffers.foo.enabled=true", ("buffer provider 'foo' is unknown",)),
        ("buffers.logit.enabled=true", ("did you mean 'logits'?",)),
        ("backend.kind=flashinferr", ("attention backend 'flashinferr' is unknown",)),
        ("task.kind=plan", ("write task=plan",)),
        ("speculative.kind=dspark", ("write speculative=dspark",)),
    ],
)
def test_a_name_that_does_not_exist_is_told_the_choices(override: str, words: tuple[str, ...]) -> None:
    reason = only_reason(override)
    for part in words:
        assert part in reason


@pytest.mark.parametrize("override", ["~model", "~model=tiny"])
def test_a_group_that_is_removed_is_reported_as_not_chosen(override: str) -> None:
    assert only_reason(override) == (
        "model is not chosen; write model=NAME with one of checkpoint, tiny, v4_flash, v4_pro"
    )


def test_a_removed_group_is_told_beside_other_problems() -> None:
    found = reasons("~model", "device.kind=gpu")
    assert any("model cannot be removed" in reason for reason in found)
    assert any("device.kind=gpu" in reason for reason in found)


def test_options_of_a_known_provider_that_is_not_selected() -> None:
    assert "buffers.logits is not selected" in only_reason("buffers=[]", "buffers.logits.enabled=true")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("pipeline.capture_requests=4", "write a list of integers, as in [1,2,4]"),
        ("pipeline.capture_requests=null", "write a list of integers"),
        ("pipeline.capture_requests=[1,x]", "write a list of integers"),
        ("pipeline.capture_requests.0=x", "write an integer"),
        ("pipeline.capture_requests=[[1]]", "pipeline.capture_requests.0: write an integer"),
        ("pipeline.capture_requests=[{a: 1}]", "pipeline.capture_requests.0: write an integer"),
        ("workload.prompts=[[a]]", "workload.prompts.0: write text"),
        ("pipeline.max_requests=${pipeline.max_requests}", "Recursive interpolation"),
        ("output=???", "output has no value"),
        ("pipeline.max_requests=range(1,3)", "takes one value here; add -m"),
        ("pipeline.capture_requests[0]=5", "a list is written whole"),
        ("device.memory_gib=abc", "write a number above 0, or null"),
        ("device.memory_gib=0", "device.memory_gib=0.0 must be above 0"),
        ("pipeline.max_requests=", "write an integer of at least 1"),
        ("speculative.block_size=None", "write an integer of at least 1, or null"),
        ("buffers.logits.enabled=maybe", "write true or false"),
        ("workload.prompts=5", "write a list of texts"),
        ("speculative.ragged_shares=[a]", "write a list of numbers"),
        ("model.layer_types=[foo]", "out of sliding_attention, compressed_sparse_attention"),
        ("model.dspark={block_size: 3}", "model.dspark is null in this configuration"),
        ("model.rope_scaling.factor=2", "model.rope_scaling is null"),
        ("speculative.num_draft_tokens=${nowhere}", "Interpolation key 'nowhere' not found"),
        ("~pipeline.strict", "an option cannot be removed"),
        ("+pipeline.strict=false", "exists already; write pipeline.strict=false"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_what_fits(override: str, words: str) -> None:
    assert words in only_reason(override)


@pytest.mark.parametrize("override", ["a b", "x=[1,", "=3", "", "model.name={", "x=(1,2"])
def test_what_cannot_be_read_as_an_override_is_quoted(override: str) -> None:
    assert "cannot be read as an override" in only_reason(override)


def test_an_option_without_a_value() -> None:
    assert only_reason("model.name") == "model.name: it has no value; write model.name=VALUE"


def test_a_ragged_share_is_a_share() -> None:
    reason = only_reason("speculative.verify_layout=ragged", "speculative.ragged_shares=[2]")
    assert "a share lies above 0 and is at most 1" in reason


def test_several_values_for_one_job() -> None:
    reason = only_reason("model=tiny,v4_flash")
    assert "add -m to run one job for each" in reason
    assert "model=[tiny,v4_flash]" in reason


def test_every_problem_is_told_at_once() -> None:
    found = reasons(
        "speculative.num_draft_token=5",
        "device.kind=gpu",
        "pipeline.max_requests=0",
        "+foo=1",
        "model=v4flash",
        "pipeline.page_tokens=100",
        "x=[1,",
        "speculative.num_draft_tokens=1",
    )
    for part in (
        "num_draft_token'",
        "device.kind=gpu",
        "pipeline.max_requests=0 must be at least 1",
        "foo: ",
        "model=v4flash",
        "pipeline.page_tokens=100 must be a multiple",
        "'x=[1,'",
        "speculative.num_draft_tokens=1: write null",
    ):
        assert sum(part in reason for reason in found) == 1, part
    assert len(found) == 8


def test_unknown_keys_are_told_together_with_rule_violations() -> None:
    found = reasons("+foo=1", "speculative.num_draft_tokens=1", "++pipeline.bar=2")
    assert len(found) == 3


def test_a_missing_value_does_not_hide_the_other_problems() -> None:
    found = reasons("task=train_target", "speculative.num_draft_tokens=1")
    assert found[0] == "task.checkpoint_out has no value; set task.checkpoint_out=…"
    assert len(found) == 2


def test_a_model_without_checkpoint_or_dimensions() -> None:
    assert "model.checkpoint=FOLDER" in only_reason("model=checkpoint")


@pytest.mark.parametrize(
    "override",
    [
        "+_target_=os.system",
        "++buffers.logits._target_=torch.load",
        "++pipeline._target_=builtins.open",
        "pipeline={_target_: os.system}",
        "+workload.extra={inner: {_target_: subprocess.run}}",
        "model.rope_scaling={_target_: 1}",
    ],
)
def test_a_target_is_refused_by_name_wherever_it_stands(override: str) -> None:
    """Field report 52: a configuration never names code; nothing is imported to find out."""
    found = reasons(override)
    assert any("_target_ is refused" in reason for reason in found)


def test_composition_inside_an_application_gives_its_state_back() -> None:
    from hydra import compose, initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    with initialize_config_module("dspark_factory.conf", version_base="1.3"):
        before = GlobalHydra.instance().hydra
        load_config()
        reasons("model=v4flash")
        assert GlobalHydra.instance().hydra is before
        assert compose("config").model.name == "tiny"


@pytest.mark.parametrize(
    "override", ["device.memory_gib=nan", "device.memory_gib=inf", "workload.temperature=nan"]
)
def test_numbers_are_finite(override: str) -> None:
    assert only_reason(override).endswith("write a finite number")


def test_a_shortest_match_above_the_longest_is_refused() -> None:
    reason = only_reason("speculative.min_match=9", "speculative.max_match=3")
    assert "speculative.min_match=9 is above speculative.max_match=3" in reason
