"""Calibration measures against their definitions, temperatures against a known truth, and the file that holds them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_factory.errors import CalibrationError
from dspark_factory.speculative.calibration import (
    LARGEST_TEMPERATURE,
    auc,
    brier,
    calibration_report,
    ece,
    fit_temperatures,
    reliability,
)
from dspark_factory.speculative.confidence_file import read_temperatures, write_temperatures

TRUE = np.array([1.8, 1.5, 2.5, 1.3, 2.0])
"""What the logits of the synthetic log were multiplied by."""


def synthetic_log(rows: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overconfident logits, and acceptance by the confidences that they had before; some rows offer fewer drafts."""
    random = np.random.default_rng(seed)
    logits = random.normal(1.6, 1.5, (rows, len(TRUE)))
    offered = np.where(random.random(rows) < 0.2, random.integers(1, len(TRUE), rows), len(TRUE))
    accepted = (random.random(logits.shape) < 1 / (1 + np.exp(-logits))).cumprod(axis=1).sum(axis=1)
    return logits * TRUE, np.minimum(accepted, offered), offered


@pytest.fixture(scope="module")
def fitted() -> np.ndarray:
    return fit_temperatures(*synthetic_log(60_000))


def test_temperatures_of_overconfident_logits_are_recovered(fitted):
    np.testing.assert_allclose(fitted, TRUE, rtol=0.12)


def test_temperatures_mend_the_calibration_of_rows_that_they_were_not_fitted_on(fitted):
    report = calibration_report(*synthetic_log(60_000, seed=1), fitted)
    for entry in report["positions"]:
        assert entry["ece_after"] <= entry["ece_before"] / 2
        assert entry["ece_after"] < 0.02
        assert entry["brier_after"] < entry["brier_before"]
    assert report["ece_after"] == pytest.approx(
        np.mean([entry["ece_after"] for entry in report["positions"]])
    )
    assert report["brier_after"] < report["brier_before"]


def test_a_report_counts_the_rows_that_offered_a_position_and_goes_through_json(fitted):
    log = synthetic_log(3000, seed=2)
    report = calibration_report(*log, fitted)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert [entry["position"] for entry in report["positions"]] == [1, 2, 3, 4, 5]
    for position, entry in enumerate(report["positions"]):
        assert entry["count"] == np.count_nonzero(log[2] > position)
        for bins in (entry["bins"], entry["bins_after"]):
            assert sum(item["count"] for item in bins) == entry["count"]


def test_a_row_says_nothing_about_positions_that_it_did_not_offer():
    logits, accepted, offered = synthetic_log(4000)
    changed = np.where(np.arange(len(TRUE)) < offered[:, None], logits, np.nan)
    assert fit_temperatures(changed, accepted, offered).tolist() == pytest.approx(
        fit_temperatures(logits, accepted, offered).tolist()
    )


def test_earlier_positions_are_fitted_without_regard_to_later_ones():
    logits, accepted, offered = synthetic_log(4000)
    shorter = fit_temperatures(logits[:, :2], np.minimum(accepted, 2), np.minimum(offered, 2))
    assert fit_temperatures(logits, accepted, offered)[:2].tolist() == shorter.tolist()


CASES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.04, 0.05, 0.3, 0.5, 0.97, 1.0]), st.integers(0, 1)), min_size=1
)


@given(cases=CASES)
def test_measures_are_what_their_definitions_say(cases):
    predicted, observed = (np.array(own, dtype=float) for own in zip(*cases, strict=True))
    distance = 0.0
    for index in range(20):
        inside = [(p, o) for p, o in cases if min(int(p * 20), 19) == index]
        distance += abs(sum(p for p, _ in inside) - sum(o for _, o in inside)) / len(cases)
    assert ece(predicted, observed) == pytest.approx(distance)
    assert brier(predicted, observed) == pytest.approx(sum((p - o) ** 2 for p, o in cases) / len(cases))
    pairs = [(p > q) + (p == q) / 2 for p, o in cases if o for q, other in cases if not other]
    assert auc(predicted, observed) == pytest.approx(np.mean(pairs) if pairs else 0.5)


def test_measures_of_a_small_case():
    predicted, observed = np.array([0.9, 0.91, 0.2, 0.6]), np.array([1.0, 0.0, 0.0, 1.0])
    assert ece(predicted, observed) == pytest.approx((0.81 + 0.2 + 0.4) / 4)
    assert auc(predicted, observed) == pytest.approx(2 / 4)
    assert brier(predicted, observed) == pytest.approx((0.01 + 0.91**2 + 0.04 + 0.16) / 4)
    assert reliability(predicted, observed, 2) == [
        {"predicted": 0.2, "observed": 0.0, "count": 1},
        {"predicted": pytest.approx(2.41 / 3), "observed": pytest.approx(2 / 3), "count": 3},
    ]


@pytest.mark.parametrize("measure", [ece, auc, brier])
def test_nothing_predicted_is_nothing_to_judge(measure):
    with pytest.raises(CalibrationError, match="no prediction"):
        measure(np.array([]), np.array([]))


@pytest.mark.parametrize(
    ("logits", "accepted"),
    [
        (np.random.default_rng(0).normal(1, 1, (50, 2)), np.full(50, 2)),
        (np.random.default_rng(0).normal(1, 1, (50, 2)), np.zeros(50, dtype=int)),
        (np.array([[0.3, -900.0]]), np.array([1])),
        (np.full((40, 2), 1.5), np.arange(40) % 3),
    ],
    ids=["all accepted", "none accepted", "one row", "constant logits"],
)
def test_degenerate_logs_give_finite_temperatures_and_a_report(logits, accepted):
    offered = np.full(len(logits), 2)
    temperatures = fit_temperatures(logits, accepted, offered)
    assert (temperatures >= 0.999 / LARGEST_TEMPERATURE).all()
    assert (temperatures <= 1.001 * LARGEST_TEMPERATURE).all()
    report = calibration_report(logits, accepted, offered, temperatures)
    json.dumps(report, allow_nan=False)
    assert report["ece_after"] <= report["ece_before"]


def test_logits_that_no_temperature_changes_keep_that_of_one():
    assert fit_temperatures(np.zeros((9, 2)), np.arange(9) % 3, np.full(9, 2)).tolist() == [1, 1]


def test_a_malformed_log_is_refused_with_every_reason():
    with pytest.raises(CalibrationError) as error:
        fit_temperatures(np.array([[np.inf, 0.0, 0.0]]), np.array([2]), np.array([1]))
    for reason in (
        "not finite",
        "accept more drafts than they offered",
        "no row offers a draft at position 2, 3",
    ):
        assert reason in str(error.value)
    with pytest.raises(CalibrationError, match=r"these are \[3, 2\], \[2\] and \[3\]"):
        fit_temperatures(np.zeros((3, 2)), np.zeros(2), np.zeros(3))


@pytest.mark.parametrize("temperatures", [[1.0], [1.0, 0.0], [1.0, float("nan")]])
def test_temperatures_that_do_not_fit_the_log_are_refused(temperatures):
    with pytest.raises(CalibrationError, match="do not fit logits of 2 positions"):
        calibration_report(np.zeros((3, 2)), np.ones(3), np.full(3, 2), np.array(temperatures))


def test_temperatures_come_back_from_their_file_cut_to_the_block(tmp_path):
    path = tmp_path / "temperatures.json"
    write_temperatures(path, np.array([1.25, 0.1, 3.0]), notes="fitted on 400 steps")
    assert read_temperatures(path, 3) == (1.25, 0.1, 3.0)
    assert read_temperatures(path, 2) == (1.25, 0.1)
    assert json.loads(path.read_text()) == {
        "format": "dspark-confidence-temperatures",
        "version": 1,
        "temperatures": [1.25, 0.1, 3.0],
        "positions": 3,
        "notes": "fitted on 400 steps",
    }


def test_a_wrong_file_is_refused_with_every_reason(tmp_path):
    path = tmp_path / "temperatures.json"
    path.write_text(
        '{"format": "other", "version": true, "temperatures": [0, NaN, "1", 2], "positions": 5, "heat": 1}'
    )
    with pytest.raises(CalibrationError) as error:
        read_temperatures(path, 7)
    for reason in (
        "\"format\" is 'other'",
        '"version" is True',
        "position 1 is 0",
        "position 2 is nan",
        "position 3 is '1'",
        '"positions" is 5, and 4 temperatures are listed',
        "4 temperatures are listed, and the block has 7 drafts",
        '"heat" is unknown',
    ):
        assert reason in str(error.value)
    assert "position 4" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "no JSON object"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"{}", '"temperatures" is no list'),
        (b'{"temperatures": [1' + b"0" * 400 + b"]}", "no finite number above 0"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_holds_no_temperatures_is_refused(tmp_path, content, message):
    path = tmp_path / "temperatures.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CalibrationError, match=message):
        read_temperatures(path, 1)


@pytest.mark.parametrize("temperatures", [[], [1.0, -1.0], [float("inf")]])
def test_temperatures_that_could_not_be_read_are_not_written(tmp_path, temperatures):
    with pytest.raises(CalibrationError, match="is not written"):
        write_temperatures(tmp_path / "temperatures.json", temperatures)
    assert not (tmp_path / "temperatures.json").exists()
