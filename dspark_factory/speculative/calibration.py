"""Calibration of confidences: how far they are from the acceptance that was seen, and temperatures that mend it.

What is judged at position k is the *cumulative* confidence, the product of the confidences up to k, against whether
the drafts up to k were all accepted. Host side, on logs of verify steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dspark_factory.errors import CalibrationError

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]

BINS = 20
"""Bins of equal width, of the published calibration errors."""
LARGEST_TEMPERATURE = 20.0
"""The search goes from its reciprocal up to it."""
STEPS = 40
"""Temperatures on either side of the best one, in each round of the search."""


def ece(predicted: Floats, observed: Floats, bins: int = BINS) -> float:
    """Expected calibration error: mean distance of predicted from observed, by bins of equal width over 0..1.

    Args:
        predicted: ``[n]`` probabilities.
        observed: ``[n]`` outcomes, 0 or 1.
        bins: number of bins; a prediction on the border of two belongs to the upper one.

    Raises:
        CalibrationError: there is no prediction.
    """
    _require(predicted)
    excess = np.bincount(_bin_of(predicted, bins), weights=predicted - observed)
    return float(np.abs(excess).sum() / len(predicted))


def brier(predicted: Floats, observed: Floats) -> float:
    """Mean squared difference of ``[n]`` probabilities from ``[n]`` outcomes, 0 or 1.

    Raises:
        CalibrationError: there is no prediction.
    """
    _require(predicted)
    return float(np.mean((predicted - observed) ** 2))


def auc(predicted: Floats, observed: Floats) -> float:
    """Probability that an accepted case was predicted higher than a rejected one, equals counted half.

    Args:
        predicted: ``[n]`` scores.
        observed: ``[n]`` outcomes, 0 or 1; where all are alike there is nothing to rank, and the value is 0.5.

    Raises:
        CalibrationError: there is no prediction.
    """
    _require(predicted)
    positive = np.asarray(observed) > 0
    accepted = int(positive.sum())
    rejected = len(positive) - accepted
    if not accepted or not rejected:
        return 0.5
    _, inverse, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    above = mean_ranks[inverse][positive].sum() - accepted * (accepted + 1) / 2
    return float(above / accepted / rejected)


def reliability(predicted: Floats, observed: Floats, bins: int = BINS) -> list[dict[str, float | int]]:
    """Mean predicted and observed probability, and count, of every bin that is not empty, from low to high.

    Args:
        predicted: ``[n]`` probabilities.
        observed: ``[n]`` outcomes, 0 or 1.
        bins: number of bins of equal width over 0..1.
    """
    index = _bin_of(predicted, bins)
    counts = np.bincount(index, minlength=bins)
    means = [np.bincount(index, weights=own, minlength=bins) for own in (predicted, observed)]
    return [
        {"predicted": float(ours / count), "observed": float(theirs / count), "count": int(count)}
        for ours, theirs, count in zip(*means, counts, strict=True)
        if count
    ]


def fit_temperatures(logits: Floats, accepted: Integers, offered: Integers) -> Floats:
    """One temperature per position, ``[block]`` fp64, for confidences ``sigmoid(logit / temperature)``.

    Sequential temperature scaling (DSpark paper, section on calibration): positions in order, each temperature
    minimises the calibration error of the cumulative confidence while those before it stay as they are. Of equally
    good ones it takes that nearest to 1, which leaves logits as they are.

    Args:
        logits: ``[n, block]`` of the confidences, before the sigmoid.
        accepted: ``[n]`` leading drafts that were accepted.
        offered: ``[n]`` drafts that were verified; a row counts at the positions that it offered.

    Raises:
        CalibrationError: the log is malformed, or some position was never offered; every reason at once.
    """
    logits, accepted, offered = _checked(logits, accepted, offered)
    cumulative = np.ones(len(logits))
    temperatures = np.ones(logits.shape[1])
    for position, own in enumerate(logits.T):
        rows = offered > position
        temperatures[position] = _best_temperature(
            own[rows], cumulative[rows], (accepted[rows] > position).astype(np.float64)
        )
        cumulative = cumulative * _sigmoid(own / temperatures[position])
    return temperatures


def calibration_report(
    logits: Floats, accepted: Integers, offered: Integers, temperatures: Floats
) -> dict[str, Any]:
    """Calibration of the cumulative confidences without and with temperatures, in values that JSON can hold.

    Args:
        logits: ``[n, block]`` of the confidences, before the sigmoid.
        accepted: ``[n]`` leading drafts that were accepted.
        offered: ``[n]`` drafts that were verified; a row counts at the positions that it offered.
        temperatures: ``[block]``, finite and above 0.

    Returns:
        ``positions``, one entry per position from 1: ``count`` of rows, ``ece_before`` and ``ece_after``, ``auc`` of
        the unscaled confidences, ``brier_before`` and ``brier_after``, and the :func:`reliability` of both in
        ``bins`` and ``bins_after``. Beside it the errors and Brier scores as plain means over positions.

    Raises:
        CalibrationError: the log is malformed, some position was never offered, or the temperatures do not fit it.
    """
    logits, accepted, offered = _checked(logits, accepted, offered)
    heats = np.asarray(temperatures, dtype=np.float64)
    if heats.shape != logits.shape[1:] or not (np.isfinite(heats) & (heats > 0)).all():
        raise CalibrationError(
            f"temperatures {heats.tolist()} do not fit logits of {logits.shape[1]} positions; "
            "give each position one that is finite and above 0"
        )
    before, after = (np.cumprod(_sigmoid(logits / heat), axis=1) for heat in (1.0, heats))
    positions: list[dict[str, Any]] = []
    for position in range(logits.shape[1]):
        rows = offered > position
        observed = (accepted[rows] > position).astype(np.float64)
        plain, scaled = before[rows, position], after[rows, position]
        positions.append(
            {
                "position": position + 1,
                "count": len(observed),
                "ece_before": ece(plain, observed),
                "ece_after": ece(scaled, observed),
                "auc": auc(plain, observed),
                "brier_before": brier(plain, observed),
                "brier_after": brier(scaled, observed),
                "bins": reliability(plain, observed),
                "bins_after": reliability(scaled, observed),
            }
        )
    means = ("ece_before", "ece_after", "brier_before", "brier_after")
    return {"positions": positions} | {
        name: float(np.mean([entry[name] for entry in positions])) for name in means
    }


def _best_temperature(logits: Floats, cumulative: Floats, observed: Floats) -> float:
    """Of a grid over the whole range, even in the logarithm, and then of a finer one around its best."""
    best, limit = 0.0, np.log(LARGEST_TEMPERATURE)
    for reach in (limit, limit / STEPS):
        candidates = np.clip(best + np.linspace(-reach, reach, 2 * STEPS + 1), -limit, limit)
        # In this order the first of equals is the nearest to 1.
        candidates = candidates[np.argsort(np.abs(candidates), kind="stable")]
        errors = [ece(cumulative * _sigmoid(logits / heat), observed) for heat in np.exp(candidates)]
        best = float(candidates[np.argmin(errors)])
    return float(np.exp(best))


def _sigmoid(logits: Floats) -> Floats:
    """Without overflow at either end."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits)


def _bin_of(predicted: Floats, bins: int) -> Integers:
    return np.minimum((predicted * bins).astype(np.int64), bins - 1)


def _require(predicted: Floats) -> None:
    if not len(predicted):
        raise CalibrationError(
            "there is no prediction to judge; bring a log with at least one verified draft"
        )


def _checked(logits: Floats, accepted: Integers, offered: Integers) -> tuple[Floats, Integers, Integers]:
    """The log as fp64 and integers, once nothing is wrong with it."""
    logits, accepted, offered = (
        np.asarray(logits, dtype=np.float64),
        np.asarray(accepted),
        np.asarray(offered),
    )
    if logits.ndim != 2 or not logits.shape[1] or {accepted.shape, offered.shape} != {logits.shape[:1]}:
        raise CalibrationError(
            f"a log has logits [n, block], accepted [n] and offered [n], and these are {list(logits.shape)}, "
            f"{list(accepted.shape)} and {list(offered.shape)}"
        )
    reasons = []
    used = np.arange(logits.shape[1]) < offered[:, None]
    if not np.isfinite(logits[used]).all():
        reasons.append("some logits of offered drafts are not finite")
    if ((accepted < 0) | (accepted > offered) | (offered > logits.shape[1])).any():
        reasons.append("some rows accept more drafts than they offered, or offer more than the block has")
    if missing := (np.flatnonzero(~used.any(axis=0)) + 1).tolist():
        reasons.append(
            f"no row offers a draft at position {', '.join(map(str, missing))}; log steps that verify all"
        )
    if reasons:
        raise CalibrationError(f"the log of {len(logits)} rows cannot be used: {'; '.join(reasons)}")
    return np.where(used, logits, 0.0), accepted, offered
