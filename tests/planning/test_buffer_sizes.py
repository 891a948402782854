"""What is planned, how large it is, and for whom."""

from __future__ import annotations

import pytest

from dspark_factory.config import load_config
from dspark_factory.errors import ConfigError
from dspark_factory.planning.plan import Plan, plan
from tests.conftest import Register
from tests.third_party import MASK_READER, Wanting, wanting
from tests.verify_mask_plugin import VERIFY_MASK

SERVER = ["model=v4_flash", "speculative=dspark", "pipeline=server"]
SPECULATIVE = ("extend_seq_lens", "extend_start_loc", "accept_lens")


def planned(*overrides: str) -> Plan:
    return plan(load_config(overrides))


def nbytes_of(result: Plan, *providers: str) -> int:
    return sum(result.nbytes_by_provider.get(name, 0) for name in providers)


def test_a_requested_but_unsupported_drafter_plans_no_byte_and_says_why() -> None:
    """Field report 4: unsupported means zero bytes, whatever was requested, and one message."""
    result = planned("model=v4_pro", "speculative=dspark")
    assert not result.dims.speculation
    assert nbytes_of(result, *SPECULATIVE) == 0
    assert result.nbytes == planned("model=v4_pro", "speculative=off").nbytes
    (note,) = [note for note in result.notes if "speculation is off" in note]
    assert "v4_pro carries no DSpark drafter" in note


def test_a_mask_is_planned_once_and_for_the_target_only(register: Register) -> None:
    """Field report 6: a buffer is created only by the role that reads it."""
    register(VERIFY_MASK)
    register(MASK_READER)
    result = planned(*SERVER, "buffers=[default,verify_mask,mask_reader]")
    masks = [buffer for buffer in result.buffers if buffer.name == "verify_mask"]
    assert [mask.role.value for mask in masks] == ["target"]
    assert result.nbytes_by_role["draft"] == 0


@pytest.mark.parametrize("context_length", [131_072, 1_048_576])
def test_a_mask_that_is_read_has_no_context_factor(register: Register, context_length: int) -> None:
    """Field report 7: 64 requests, 6 draft tokens: 2,304 bytes, unchanged when the context is raised 8x."""
    register(VERIFY_MASK)
    register(MASK_READER)
    result = planned(
        *SERVER, "buffers=[default,verify_mask,mask_reader]", f"pipeline.context_length={context_length}"
    )
    assert nbytes_of(result, "verify_mask") == 64 * 6 * 6 == 2304


def test_a_mask_that_nobody_reads_is_not_planned(register: Register) -> None:
    """Field report 7: no reader, no mask; a reader that is switched off is none."""
    register(VERIFY_MASK)
    unread = planned(*SERVER, "buffers=[default,verify_mask]")
    assert unread.gates["verify_mask"].reason == "nobody reads it"
    assert unread.nbytes == planned(*SERVER).nbytes
    register(MASK_READER)
    result = planned(
        *SERVER, "buffers=[default,verify_mask,mask_reader]", "buffers.mask_reader.enabled=false"
    )
    assert not result.gates["verify_mask"].enabled
    assert nbytes_of(result, "verify_mask") == 0


def test_nothing_speculative_grows_with_the_context(register: Register) -> None:
    """Field report 7: raising the context 8x changes no speculative buffer."""
    register(VERIFY_MASK)
    register(MASK_READER)
    ragged = [*SERVER, "buffers=[default,verify_mask,mask_reader]", "speculative.verify_layout=ragged"]
    short, long = planned(*ragged), planned(*ragged, "pipeline.context_length=1048576")
    for name in (*SPECULATIVE, "verify_mask"):
        assert nbytes_of(short, name) == nbytes_of(long, name) > 0, name


def test_capacity_covers_the_largest_candidate_not_the_active_one() -> None:
    """Field report 8: candidates 2, 4 and 8, active 4, 32 requests: 256 rows."""
    result = planned(
        "speculative.num_draft_tokens=4",
        "speculative.draft_token_candidates=[2,8]",
        "pipeline.max_requests=32",
        "pipeline.capture_requests=[1,32]",
    )
    assert result.dims.max_batch_rows == 256
    sizes = {buffer.name: buffer.sizes for buffer in result.buffers}
    assert sizes["target_tokens"] == (256,)
    assert sizes["extend_seq_lens"] == (32,)
    assert max(key.rows for key in result.graph_keys) == 256
    assert {key.width for key in result.graph_keys} == {1, 2, 4, 8}


@pytest.mark.parametrize(
    "off", [["speculative=off"], ["speculative=ngram", "speculative.num_draft_tokens=null"]]
)
def test_speculation_that_is_off_plans_nothing_speculative(off: list[str]) -> None:
    result = planned("model=v4_flash", *off)
    assert nbytes_of(result, *SPECULATIVE) == 0
    for name in ("speculation", "extend_seq_lens", "extend_start_loc", "accept_lens"):
        assert not result.gates[name].enabled
        assert result.gates[name].reason
    assert {key.width for key in result.graph_keys} == {1}
    assert result.dims.window_ring_rows == result.dims.sliding_window


def test_start_rows_exist_only_where_ragged_verify_can_happen() -> None:
    assert nbytes_of(planned(*SERVER), "extend_start_loc") == 0
    assert nbytes_of(planned(*SERVER, "speculative.verify_layout=ragged"), "extend_start_loc") == 64 * 4


def test_a_switched_off_provider_plans_nothing_and_says_who_switched_it() -> None:
    result = planned("buffers.logits.enabled=false")
    assert nbytes_of(result, "logits") == 0
    assert result.gates["logits"].reason == "buffers.logits.enabled=false"


def test_a_provider_whose_gate_is_off_is_never_asked(register: Register) -> None:
    register(wanting("wanting"))
    Wanting.times_asked = 0
    planned("buffers=[default,wanting]", "buffers.wanting.enabled=false")
    assert Wanting.times_asked == 0


def test_a_requirement_that_is_off_switches_its_dependent_off(register: Register) -> None:
    register(wanting("dependent", "accept_lens"))
    result = planned("buffers=[default,dependent]", "speculative=off")
    assert "requires accept_lens, which is off: speculation is off" in result.gates["dependent"].reason


def test_a_requirement_that_is_not_selected_is_refused(register: Register) -> None:
    register(wanting("dependent", "elsewhere"))
    with pytest.raises(ConfigError, match="requires 'elsewhere', which is not selected"):
        planned("buffers=[default,dependent]")


def test_requirements_in_a_circle_are_refused(register: Register) -> None:
    register(wanting("first", "second"))
    register(wanting("second", "first"))
    with pytest.raises(ConfigError, match="in a circle: "):
        planned("buffers=[default,first,second]")


def test_two_providers_that_want_one_name_are_refused(register: Register) -> None:
    register(wanting("first"))
    register(wanting("second"))
    with pytest.raises(ConfigError, match="'wanted' is asked for by first and by second"):
        planned("buffers=[default,first,second]")


def test_planned_bytes_add_up_and_buffers_do_not_overlap() -> None:
    result = planned(*SERVER, "speculative.verify_layout=ragged", "workload.temperature=1")
    assert result.nbytes == sum(buffer.nbytes for buffer in result.buffers)
    assert result.nbytes == sum(result.nbytes_by_provider.values()) == sum(result.nbytes_by_role.values())
    end = 0
    for buffer in result.buffers:
        assert buffer.offset >= end
        assert buffer.offset % 256 == 0
        end = buffer.offset + buffer.nbytes
    assert end <= result.block_nbytes


def test_staged_buffers_lie_together_at_the_start() -> None:
    result = planned(*SERVER)
    staged = [buffer.update.value == "host_stage" for buffer in result.buffers]
    assert staged == sorted(staged, reverse=True)
    last = result.buffers[staged.count(True) - 1]
    assert last.offset + last.nbytes <= result.staged_nbytes


def test_too_little_memory_is_refused_with_what_would_fit() -> None:
    with pytest.raises(ConfigError, match=r"GiB but device\.memory_gib=1\.0; \d+ requests of"):
        planned(*SERVER, "device.memory_gib=1")


def test_the_number_of_requests_that_fit_fits() -> None:
    base = ["model=v4_flash", "pipeline.context_length=4096", "pipeline.capture_requests=[1]"]
    fit = planned(*base, "device.memory_gib=2").kv.requests_that_fit
    assert fit is not None
    assert planned(*base, f"pipeline.max_requests={fit}", "device.memory_gib=2")
    with pytest.raises(ConfigError, match="the buffers take"):
        planned(*base, f"pipeline.max_requests={fit + 1}", "device.memory_gib=2")


def test_a_backend_that_cannot_serve_is_refused_with_all_its_reasons(register: Register) -> None:
    from tests.third_party import CHOOSY

    register(CHOOSY)
    with pytest.raises(ConfigError) as refused:
        planned("backend=choosy")
    assert refused.value.reasons == (
        "backend=choosy: head_dim=128 is not 7",
        "backend=choosy: it is choosy",
    )
