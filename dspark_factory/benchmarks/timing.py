"""Timing work on a device: captured once, replayed in rounds in which contenders alternate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import torch

from dspark_factory.pipeline.graphs import Graph, create_graph

Work = Callable[[], object]


def synchronize(device: torch.device) -> None:
    """Wait for everything launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def captured(work: Work, device: torch.device) -> Work:
    """``work`` as one graph launch; on a CPU as it is, for graphs gain nothing to measure there."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        work()
    stream.synchronize()
    graph = create_graph("cuda", stream=stream)
    graph.capture(lambda: _run(work))
    return partial(_replay, graph, work)


def _run(work: Work) -> None:
    work()


def _replay(graph: Graph, work: Work) -> None:
    """A replay reads the memory that ``work`` holds, so the two live together."""
    graph.replay()


def microseconds(work: Work, device: torch.device) -> float:
    """Time of one call: between events on a device, wall time on a CPU."""
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1e6
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def rounds(
    works: Mapping[str, Work], device: torch.device, *, repeats: int, calls: int
) -> dict[str, list[float]]:
    """Microseconds of one of the ``calls`` that each work stands for, by name and round; a first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for index in range(repeats + 1):
        for name, work in works.items():
            spent = microseconds(work, device) / calls
            if index:
                times[name].append(spent)
    return times


def summary(times: Mapping[str, list[float]], own: str) -> dict[str, dict[str, float]]:
    """Median of each, its spread, and the ratio of ``own`` to it: the median of the ratios within a round."""
    return {
        name: {
            "microseconds": median(values),
            "low": min(values),
            "high": max(values),
            "ratio": median(mine / theirs for mine, theirs in zip(times[own], values, strict=True)),
        }
        for name, values in times.items()
    }
