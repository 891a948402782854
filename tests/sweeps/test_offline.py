"""Recommendations from an acceptance log and a cost table: the optimum is known from the numbers behind them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dspark_factory.speculative.statistics import AcceptStatistics
from dspark_factory.sweeps.acceptance_log import AcceptanceLog, expected_tokens, read_acceptance_log
from dspark_factory.sweeps.cost_table import CostTable, read_cost_table
from dspark_factory.sweeps.input_files import InputFileError
from dspark_factory.sweeps.offline import candidates_from
from dspark_factory.sweeps.recommend import NoRecommendation, recommend


def log_of(*histogram: int) -> AcceptanceLog:
    """A log with this many steps that accepted 0, 1, 2, ... drafts; all offered the most."""
    accepted = np.repeat(np.arange(len(histogram)), histogram)
    return AcceptanceLog(accepted=accepted, offered=np.full_like(accepted, len(histogram) - 1))


def brute_force(histogram: list[int], costs: CostTable, requests: int) -> dict[int, float]:
    """Tokens per second by count, step by step: a step with N - 1 drafts commits min(accepted, N - 1) + 1 tokens."""
    speeds = {}
    for size, count in costs.verify:
        if size == requests:
            tokens = sum((min(accepted, count - 1) + 1) * steps for accepted, steps in enumerate(histogram))
            time = costs.verify[size, count] + costs.draft.get(count, 0)
            speeds[count] = 1e3 * requests * tokens / sum(histogram) / time
    if requests in costs.decode:
        speeds[1] = 1e3 * requests / costs.decode[requests]
    return speeds


def linear(base: float, per_row: float, counts: range, draft: float = 0.0) -> CostTable:
    return CostTable(
        verify={(size, count): base + per_row * size * count for size in (1, 8, 64) for count in counts},
        draft={count: draft * count for count in counts} if draft else {},
        decode={size: base + per_row * size for size in (1, 8, 64)},
    )


@pytest.mark.parametrize(
    ("histogram", "costs"),
    [
        ([5000, 2500, 1250, 625, 625], linear(10, 0.05, range(2, 6))),
        ([2000, 1600, 1280, 1024, 819, 3277], linear(10, 0.2, range(2, 7), draft=0.05)),
        ([9000, 900, 90, 10], linear(10, 1.0, range(2, 5))),
        ([100, 100, 9800], linear(5, 0.001, range(2, 4))),
    ],
    ids=["halving", "four fifths", "hardly any", "nearly all"],
)
def test_a_known_optimum_is_found_at_every_batch_size(histogram: list[int], costs: CostTable) -> None:
    candidates, left_out = candidates_from(log_of(*histogram), costs)
    assert left_out == []
    for choice in recommend(candidates, tie=0).choices:
        true = brute_force(histogram, costs, choice.requests)
        best = max(true, key=lambda count: true[count])
        assert (choice.num_draft_tokens or 1) == best
        assert choice.gain == pytest.approx(true[best] / true[1], rel=0.02)
    for item in candidates:
        point = brute_force(histogram, costs, item.requests)[item.count]
        assert item.tokens_per_second.median == pytest.approx(point, rel=0.005)


@settings(max_examples=60, deadline=None)
@given(
    histogram=st.lists(st.integers(200, 5000), min_size=3, max_size=8),
    times=st.lists(st.floats(1, 50), min_size=8, max_size=8),
)
def test_the_recommended_count_maximises_the_analytic_objective(
    histogram: list[int], times: list[float]
) -> None:
    counts = range(2, len(histogram) + 1)
    costs = CostTable(verify={(4, count): times[count - 1] for count in counts}, decode={4: times[0]})
    true = brute_force(histogram, costs, 4)
    ordered = sorted(true.values(), reverse=True)
    assume(ordered[0] > 1.03 * ordered[1])
    (choice,) = recommend(candidates_from(log_of(*histogram), costs)[0]).choices
    assert true[choice.num_draft_tokens or 1] == ordered[0]


@pytest.mark.parametrize(
    "batches", [[[3, 2, 1, 0]], [[3, 2], [1, 0]], [[3], [2], [1], [0]], [[0, 3], [1, 2]]]
)
def test_accepted_prefixes_3_2_1_0_have_a_mean_of_one_and_a_half_in_any_grouping(
    batches: list[list[int]], tmp_path: Path
) -> None:
    """The rate divides by the drafts really offered; the decoder's own statistics say the same."""
    total = AcceptStatistics()
    for batch in batches:
        own = AcceptStatistics()
        for accepted in batch:
            own.add(drafts=4, accept_len=accepted + 1)
        total.merge(own)
    path = tmp_path / "log.csv"
    path.write_text("accepted,offered\n" + "".join(f"{step},4\n" for batch in batches for step in batch))
    log = read_acceptance_log(path)
    assert log.accepted.mean() == 1.5
    assert expected_tokens(log.survival(), 5) == total.accept_length == 2.5
    assert log.accepted.sum() / log.offered.sum() == total.acceptance_rate == 6 / 16
    assert log.survival().tolist() == total.acceptance_per_position == [0.75, 0.5, 0.25, 0]


def test_steps_that_offer_fewer_drafts_do_not_lower_what_lies_behind_them() -> None:
    generator = np.random.default_rng(5)
    full = (generator.random((40_000, 4)) < 0.8).cumprod(axis=1).sum(axis=1)
    offered = generator.integers(1, 5, size=full.size)
    log = AcceptanceLog(accepted=np.minimum(full, offered), offered=offered)
    assert log.survival() == pytest.approx(0.8 ** np.arange(1, 5), abs=0.01)
    assert all(low <= high for high, low in pairwise(log.survival()))


def test_resampled_survival_scatters_around_the_logs_own() -> None:
    log = log_of(500, 250, 125, 125)
    samples = log.resampled_survival(400)
    assert samples.mean(axis=0) == pytest.approx(log.survival(), abs=0.005)
    shares = log.survival()
    assert samples.std(axis=0) == pytest.approx(np.sqrt(shares * (1 - shares) / 1000), rel=0.15)
    assert (samples == log.resampled_survival(400)).all()


def test_counts_that_the_log_cannot_speak_about_are_named() -> None:
    log = AcceptanceLog(accepted=np.array([3, 3, 1, 0]), offered=np.array([3, 3, 5, 5]))
    costs = CostTable(verify={(1, count): 10.0 for count in (3, 4, 5, 9)})
    candidates, left_out = candidates_from(log, costs)
    assert [item.num_draft_tokens for item in candidates] == [3, 4]
    assert left_out == [
        "num_draft_tokens=5 verifies 4 drafts, and no step of the acceptance log that offered 4 accepted all but "
        "the last",
        "num_draft_tokens=9 verifies 8 drafts, and no step of the acceptance log offered more than 5",
    ]


def test_drafts_that_are_never_accepted_cost_and_bring_nothing() -> None:
    log = AcceptanceLog(accepted=np.zeros(50, dtype=int), offered=np.full(50, 3))
    costs = CostTable(verify={(1, 2): 11.0, (1, 4): 12.0}, decode={1: 10.0})
    (choice,) = recommend(candidates_from(log, costs)[0]).choices
    assert (choice.num_draft_tokens, choice.gain) == (None, 1)
    assert log.survival().tolist() == [0, 0, 0]


def test_few_steps_are_too_noisy_and_say_so() -> None:
    candidates, _ = candidates_from(log_of(2, 1, 1, 1), CostTable(verify={(1, 4): 10.0}))
    with pytest.raises(NoRecommendation, match="the resampled log at 1 requests with num_draft_tokens=4"):
        recommend(candidates)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bare.csv", "3\n2\n\n1\n0\n"),
        ("named.csv", "\ufeffrequest,accepted\r\na,3\r\nb,2\r\na,1\r\nb,0\r\n"),
        ("bare.jsonl", "3\n2\n1\n0\n"),
        ("objects.log", '{"accepted": 3}\n{"accepted": 2, "request": 7}\n1\n{"accepted": 0}\n'),
    ],
)
def test_logs_without_offers_take_the_most_accepted(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    log = read_acceptance_log(tmp_path / name)
    assert log.accepted.tolist() == [3, 2, 1, 0]
    assert log.offered.tolist() == [3, 3, 3, 3]
    assert "taken as 3" in log.notes[0]


def test_offers_are_read_where_they_are_stated(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"accepted": 3, "offered": 5}\n{"accepted": 0, "offered": 2}\n')
    log = read_acceptance_log(tmp_path / "log")
    assert (log.offered.tolist(), log.notes) == ([5, 2], ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accepted\n3\nx\n-1\n2.5\n", ["line 3: accepted='x'", "line 4: accepted='-1'", "line 5: accepted='2.5'"]),
        ("\n".join(["1", *"abcdefg"]), ["line 2", "line 6", "and 2 more"]),
        ("accepted,offered\n3,2\n1\n", ["line 2: accepted=3 is more than offered=2", "line 3: it has 1 cells"]),
        ('{"accepted": true}\n{"taken": 1}\n{\n', ["accepted=True", 'no "accepted"', "line 3: '{' is no JSON"]),
        ('{"accepted": 1, "offered": 2}\n1\n', ['1 of 2 steps lack "offered"']),
        ("drafts\n1\n", ["the columns are drafts", 'none is "accepted"']),
        ("1,2\n", ["line 1: it has 2 cells"]),
        ("500\n", ["accepted='500' is no integer from 0 to 127"]),
        ("", ["it holds no step"]),
        ('accepted\n"' + "1" * 200_000, ["is no CSV"]),
    ],
)  # fmt: skip
def test_a_bad_log_is_one_message_with_its_bad_lines(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InputFileError) as refused:
        read_acceptance_log(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("is_json", [True, False])
def test_a_cost_table_is_the_same_in_both_forms(is_json: bool, tmp_path: Path) -> None:
    path = tmp_path / "costs"
    if is_json:
        verify = [
            {"requests": 1, "num_draft_tokens": 6, "milliseconds": 12.5},
            {"requests": 8, "num_draft_tokens": 1, "milliseconds": 20},
        ]
        decode = [{"requests": 1, "milliseconds": 10.0}]
        path.write_text(json.dumps({"unit": "milliseconds", "verify": verify, "decode": decode}))
    else:
        path.write_text("requests,num_draft_tokens,milliseconds\n1, 6, 12.5\n8,1,20\n1,,10.0\n")
    table = read_cost_table(path)
    assert table == CostTable(verify={(1, 6): 12.5}, decode={8: 20, 1: 10})
    assert "drafting" in table.notes[0]


def entry(**changes: object) -> dict[str, object]:
    return {"requests": 1, "num_draft_tokens": 6, "milliseconds": 12.5} | changes


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"verify": [entry(requests=0), entry(num_draft_tokens=129), entry(milliseconds=0), 3, {"requests": 1}]},
            ["verify[0]: requests=0", "verify[1]", "verify[2]: milliseconds=0", "verify[3]: 3", "verify[4]: it must"],
        ),
        ({"verify": [entry(), entry()]}, ["requests=1 with num_draft_tokens=6 is given twice"]),
        ({"verify": [entry(milliseconds=float("nan"))]}, ["milliseconds=nan is no number above 0"]),
        ({"verify": [entry()], "unit": "seconds"}, ["'seconds'; write the times in milliseconds"]),
        ({"verify": [entry()], "drafts": []}, ['"drafts"']),
        ({"verify": [entry()], "draft": [{"num_draft_tokens": 4, "milliseconds": 0}]}, ["lacks num_draft_tokens=6"]),
        ({"decode": [{"requests": 1, "milliseconds": 10}]}, ["it times no verify step"]),
        ([], ["holds no JSON object"]),
        ("{", ["is no JSON"]),
        ("requests,milliseconds\n1,2\n", ["the columns are requests, milliseconds"]),
        ("requests,num_draft_tokens,milliseconds\n1,6\n1,6,fast\n", ["line 2: it has 2 cells", "line 3: millisec"]),
    ],
)  # fmt: skip
def test_a_bad_cost_table_is_one_message_with_its_bad_entries(
    document: object, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "costs"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(InputFileError) as refused:
        read_cost_table(path)
    message = str(refused.value)
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("content", [None, b"\xff\xfe1"])
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    if content is not None:
        path.write_bytes(content)
    for read in (read_acceptance_log, read_cost_table):
        with pytest.raises(InputFileError, match=r"log\.csv"):
            read(path)


def test_it_imports_no_torch() -> None:
    code = "import sys; import dspark_factory.tasks.recommend; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
