"""Synthetic records of a sweep: counts by batch sizes, with values that follow from both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_factory.results import SCHEMA_VERSION, Record, Status, write_record
from dspark_factory.results.record import BufferRecord, StageRecord

PROVIDERS = ("kv_pools", "index_keys", "compressor_state", "page_table", "step_inputs", "logits")
HOSTILE = "<script>alert(1)</script>"


def batch(requests: int, count: int | None, *, speed: float = 1.0, noise: float = 0.005) -> dict[str, Any]:
    """What one job measured at one batch size; ``count`` includes the anchor."""
    drafts = 0 if count is None else count - 1
    acceptance = [0.86 - 0.05 * position for position in range(drafts)]
    accept_length, reach = 1.0, 1.0
    for share in acceptance:
        reach *= share
        accept_length += reach
    verify = 4.0 + 0.02 * requests * (drafts + 1)
    draft = 0.0 if count is None else 0.8 + 0.004 * requests * drafts
    rate = speed * 1e3 * requests * accept_length / (verify + draft)
    return {
        "requests": requests,
        "num_draft_tokens": count,
        "tokens_per_second": [rate * (1 + noise * step) for step in (-1, 0, 2, 1, -2)],
        "drafts_offered": 1000 * drafts,
        "accept_length": accept_length,
        "accept_length_interval": [accept_length * 0.97, accept_length * 1.04],
        "conditional_acceptance": acceptance,
        "verify_milliseconds": [verify, verify * 1.01, verify * 0.99],
        "draft_milliseconds": [draft, draft, draft * 1.02],
    }


def calibration(positions: int) -> dict[str, Any]:
    """What a job measured of an overconfident drafter, which temperature scaling brings near the identity."""

    def bins(excess: float, position: int) -> list[dict[str, Any]]:
        shares = [(index + 0.5) / 10 for index in range(10)]
        observed = [share - excess * share * (1 - share) / position for share in shares]
        filled = [
            {"predicted": share, "observed": seen, "count": 100 + 10 * index}
            for index, (share, seen) in enumerate(zip(shares, observed, strict=True))
        ]
        return [*filled, {"predicted": None, "observed": None, "count": 0}]

    return {
        "positions": [
            {
                "position": position,
                "ece_before": 0.08 / position,
                "ece_after": 0.01 / position,
                "auc": 0.8,
                "brier_before": 0.2,
                "brier_after": 0.17,
                "bins": bins(0.6, position),
                "bins_after": bins(0.06, position),
            }
            for position in range(1, positions + 1)
        ]
    }


def job_record(
    count: int | None,
    batches: Sequence[dict[str, Any]],
    *,
    status: Status = Status.OK,
    failure: str | None = None,
    wanted: int | None = None,
    overrides: Sequence[str] = (),
    providers: Sequence[str] = PROVIDERS,
    calibrated: dict[str, Any] | None = None,
) -> Record:
    """The record of a job that decoded with ``count``; ``wanted`` is what it was asked for, if not that."""
    asked = count if wanted is None else wanted
    buffers = tuple(
        BufferRecord(
            name=f"{provider}_rows",
            provider=provider,
            role="state",
            shape=(64, count or 1),
            units=("requests", "draft_tokens"),
            dtype="bfloat16",
            nbytes=(1 << 24 >> index) * (8 + (count or 1)),
        )
        for index, provider in enumerate(providers)
    )
    return Record(
        schema_version=SCHEMA_VERSION,
        task="measure",
        status=status,
        failure=failure,
        config={
            "requested": [f"speculative.num_draft_tokens={asked}", *overrides],
            "full": {"speculative": {"num_draft_tokens": asked}},
        },
        effective={"speculation": count is not None, "num_draft_tokens": count, "graph_nbytes": 3 << 20},
        environment={
            "python": "3.11.2",
            "platform": "Linux-6.1",
            "cpu_count": 2,
            "device": "NVIDIA H200",
            "versions": {"torch": "2.13.0", "flashinfer-python": None},
        },
        started_at="2025-01-31T12:00:00.000+00:00",
        seconds=12.5,
        stages=(StageRecord(name="PLAN", seconds=0.25), StageRecord(name="CAPTURE", seconds=2.0)),
        buffers=buffers,
        nbytes=sum(buffer.nbytes for buffer in buffers),
        gates={},
        graph_keys=("verify/8",),
        lossless=None,
        accept_length=None,
        tokens_per_second=None,
        measurements=({"batches": list(batches)} if batches else {})
        | ({"calibration": calibrated} if calibrated else {}),
    )


def write_sweep(
    folder: Path, counts: Sequence[int | None], requests: Sequence[int], *, speed: float = 1.0
) -> None:
    """One job per count, which measured every batch size; jobs are numbered as a multirun numbers them."""
    for number, count in enumerate(counts):
        batches = [batch(size, count, speed=speed) for size in requests]
        write_record(job_record(count, batches), folder / str(number))


def write_troubled_sweep(folder: Path) -> None:
    """Four good jobs, and one each that failed, still runs, had no effect, is unreadable, or is hostile."""
    write_sweep(folder, [None, 3, 5], [1, 8, 32])
    last = [batch(size, 7) for size in (1, 8, 32)]
    write_record(job_record(7, last, calibrated=calibration(6)), folder / "3")
    failed = job_record(
        None, (), status=Status.FAILED, failure="CUDA is out of memory\nat CAPTURE of verify/32", wanted=9
    )
    write_record(replace(failed, effective={}, buffers=(), nbytes=None, stages=()), folder / "4")
    write_record(job_record(11, (), status=Status("running")), folder / "5")
    write_record(job_record(5, [batch(8, 5)], wanted=6), folder / "6")
    (folder / "7").mkdir()
    (folder / "7" / "record.json").write_text("{")
    hostile = job_record(
        4,
        [batch(8, 4)],
        status=Status.REFUSED,
        failure=f"no \x1b[31m{HOSTILE} & <b>no</b>",
        overrides=[f"+workload.prompt={HOSTILE}", "[bold]loud[/bold]"],
    )
    write_record(hostile, folder / HOSTILE.replace("/", "\u2215"))
