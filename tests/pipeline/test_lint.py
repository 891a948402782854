"""The capture lint names what would break or freeze, with provider and place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dspark_factory.errors import CaptureError
from dspark_factory.pipeline.lint import Finding, lint_step, raise_on
from dspark_factory.pipeline.recorder import provider_scope


class Arena:
    """A few declared buffers, refilled by two stage variants."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(4, 8, generator=generator)
        self.index = torch.tensor([0, 1, 2, 3])
        self.mask = torch.tensor([True, False, True, False])
        self.pool = torch.zeros(16, 8)
        self.out = torch.zeros(4, 8)
        self.length = 2

    def tensors(self) -> list[Tensor]:
        return [self.x, self.index, self.mask, self.pool, self.out]

    def stages(self) -> list[Callable[[], None]]:
        return [self.stage_first, self.stage_second]

    def stage_first(self) -> None:
        self.x.fill_(1)
        self.mask.copy_(torch.tensor([True, False, True, False]))
        self.length = 2

    def stage_second(self) -> None:
        self.x.normal_()
        self.mask.copy_(torch.tensor([True, True, True, False]))
        self.length = 3


@pytest.fixture
def arena() -> Arena:
    return Arena()


def lint(arena: Arena, body: Callable[[], Any], **options: Any) -> list[Finding]:
    def step() -> None:
        with provider_scope("culprit"):
            body()

    return lint_step(step, arena.stages(), known=arena.tensors(), **options)


def kinds(findings: list[Finding]) -> set[str]:
    return {finding.kind for finding in findings}


BREACHES: dict[str, tuple[set[str], Callable[[Arena], Any]]] = {
    "item": ({"host_sync"}, lambda a: a.x[0, 0].item()),
    "bool": ({"host_sync"}, lambda a: bool(a.x[0, 0] == 1)),
    "float": ({"host_sync"}, lambda a: float(a.x[0, 0])),
    "tolist": ({"host_sync"}, lambda a: a.x.tolist()),
    "numpy": ({"host_sync"}, lambda a: a.x.numpy()),
    "nonzero": ({"host_sync", "data_dependent_shape"}, lambda a: a.mask.nonzero()),
    "masked_select": ({"host_sync", "data_dependent_shape"}, lambda a: a.x[:, 0].masked_select(a.mask)),
    "unique": ({"host_sync", "data_dependent_shape"}, lambda a: torch.unique(a.index)),
    "repeats": (
        {"host_sync", "data_dependent_shape"},
        lambda a: torch.repeat_interleave(a.x, a.index, dim=0),
    ),
    "boolean index": ({"host_sync", "data_dependent_shape"}, lambda a: a.x[a.mask]),
    "boolean index_put_": ({"host_sync"}, lambda a: a.x.index_put_((a.mask,), a.out[0])),
    "tensor": ({"host_copy"}, lambda a: torch.tensor([1.0])),
    "as_tensor": ({"host_copy"}, lambda a: torch.as_tensor([1.0])),
    "from_numpy": ({"host_copy"}, lambda a: torch.from_numpy(np.zeros(2))),
    "list index": ({"host_copy"}, lambda a: a.x[[0, 1]]),
    "cpu": ({"host_copy"}, lambda a: a.out.cpu()),
}


@pytest.mark.parametrize("name", sorted(BREACHES))
def test_host_reads_and_copies_are_named_with_provider_and_place(arena: Arena, name: str) -> None:
    expected, body = BREACHES[name]
    findings = lint(arena, lambda: body(arena))
    assert kinds(findings) == expected
    for finding in findings:
        assert finding.provider == "culprit"
        assert "test_lint.py:" in finding.where
    assert len({(f.kind, f.provider, f.where) for f in findings}) == len(findings), "each is told once"


def test_all_findings_are_raised_together(arena: Arena) -> None:
    def body() -> None:
        arena.x.sum().item()
        torch.tensor([1])

    findings = lint(arena, body)
    with pytest.raises(CaptureError) as caught:
        raise_on(findings)
    assert "2 findings" in str(caught.value)
    assert "host_sync in provider 'culprit' at " in str(caught.value)
    assert "host_copy in provider 'culprit' at " in str(caught.value)
    raise_on([])


def test_two_variants_are_needed(arena: Arena) -> None:
    with pytest.raises(ValueError, match="at least two"):
        lint_step(lambda: None, [arena.stage_first], known=[])


def test_an_error_of_the_step_itself_is_not_hidden(arena: Arena) -> None:
    with pytest.raises(ZeroDivisionError):
        lint(arena, lambda: 1 / 0)


class LazyProvider:
    """The seed: its buffer is made on first use."""

    def __init__(self) -> None:
        self.lens: Tensor | None = None

    def compute(self, out: Tensor) -> None:
        if self.lens is None:
            self.lens = torch.zeros(4, 8)
        self.lens.fill_(6)
        out.copy_(self.lens)


def test_the_seed_failure_is_named_before_capture(arena: Arena) -> None:
    lazy = LazyProvider()
    with torch.inference_mode():
        lazy.compute(arena.out)
    (finding,) = lint(arena, lambda: lazy.compute(arena.out))
    assert finding.kind == "late_allocation"
    assert finding.provider == "culprit"
    assert "test_lint.py:" in finding.where
    assert "first made inside inference mode" in finding.message
    assert "Inplace update to inference tensor outside InferenceMode is not allowed" in finding.message
    assert "requests()" in finding.message


def test_an_inference_tensor_that_is_only_read_is_named(arena: Arena) -> None:
    with torch.inference_mode():
        scale = torch.ones(8)
    (finding,) = lint(arena, lambda: arena.out.copy_(arena.x * scale))
    assert finding.kind == "late_allocation"
    assert "first made inside inference mode" in finding.message


def test_a_buffer_made_in_the_first_run_and_used_in_the_second_is_named(arena: Arena) -> None:
    lazy = LazyProvider()
    findings = lint(arena, lambda: lazy.compute(arena.out))
    assert {"late_allocation", "rebound_buffer"} <= kinds(findings)
    late = next(finding for finding in findings if finding.kind == "late_allocation")
    assert "an earlier run made at" in late.message
    assert late.message.count("test_lint.py:") == 1


def test_a_tensor_from_nowhere_is_named_once(arena: Arena) -> None:
    stray = torch.ones(8)

    def body() -> None:
        h = arena.x * stray
        arena.out.copy_(h + stray.view(1, 8))

    (finding,) = lint(arena, body)
    assert finding.kind == "late_allocation"
    assert "neither a declared buffer nor a weight" in finding.message


class LiveAttributes(Mapping[str, Tensor]):
    def __init__(self, owner: Any, *names: str) -> None:
        self._owner, self._names = owner, names

    def __getitem__(self, name: str) -> Tensor:
        return getattr(self._owner, name.partition(".")[2])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def test_a_rebound_attribute_is_named(arena: Arena) -> None:
    """Field report 11: metadata refresh that assigns a new tensor is found before any graph exists."""

    def refresh() -> None:
        arena.stage_second()
        arena.index = torch.tensor([4, 5, 6, 7])

    findings = lint_step(
        lambda: arena.pool.index_copy_(0, arena.index, arena.x),
        [arena.stage_first, refresh],
        known=arena.tensors(),
        watched=LiveAttributes(arena, "metadata.index", "metadata.x"),
    )
    assert ("rebound_buffer", "metadata", "metadata.index") in {
        (f.kind, f.provider, f.where) for f in findings
    }
    assert "metadata.x" not in {finding.where for finding in findings}
    assert {"late_allocation", "rebound_buffer"} == kinds(findings)


def test_alternating_between_declared_buffers_is_named(arena: Arena) -> None:
    """Field report 11: two valid buffers in turn are still one stale address in a graph."""
    findings = lint(arena, lambda: arena.out.copy_(arena.x if arena.length == 2 else arena.pool[:4]))
    assert kinds(findings) == {"python_value"}, "another operator runs"
    half = {2: arena.out, 3: arena.x}
    (finding,) = lint(arena, lambda: half[arena.length].add_(1))
    assert finding.kind == "rebound_buffer"


def test_a_python_value_that_changes_is_named_once_at_its_first_place(arena: Arena) -> None:
    """Field report 12: a length that is a Python number at capture is frozen; so are shapes made from it."""

    def body() -> None:
        h = arena.pool[: arena.length]
        for _ in range(5):
            h = h * 2
        arena.out[: h.shape[0]].copy_(h)

    findings = lint(arena, body)
    assert kinds(findings) == {"python_value"}
    assert len(findings) == 2, "the two slices, and none of what follows from them"
    assert "a Python value changed between two runs of the same bucket" in findings[0].message
    assert "2 became 3" in findings[0].message


@pytest.mark.parametrize("steps", [lambda n: ["relu", "neg"][n - 2], lambda n: "neg"])
def test_other_operators_in_the_second_run_are_named(arena: Arena, steps: Callable[[int], str]) -> None:
    def body() -> None:
        getattr(arena.x, steps(arena.length))()
        if arena.length == 3:
            arena.out.zero_()

    (finding,) = lint(arena, body)
    assert finding.kind == "python_value"


def test_a_number_that_changes_in_an_assignment_is_named(arena: Arena) -> None:
    def body() -> None:
        arena.out[0, 1] = arena.length

    (finding,) = lint(arena, body)
    assert finding.kind == "python_value"
    assert "2 became 3" in finding.message or "2.0 became 3.0" in finding.message


def test_a_view_that_staging_changes_is_named(arena: Arena) -> None:
    views = {2: arena.pool[:4], 3: arena.pool[4:8]}
    (finding,) = lint(arena, lambda: arena.out.copy_(views[arena.length]))
    assert finding.kind == "python_value"
    assert "another part of a buffer" in finding.message


def test_frozen_numbers_and_masks_that_a_graph_can_hold_are_no_findings(arena: Arena) -> None:
    def body() -> None:
        arena.out[0] = 1.0
        arena.out[arena.mask] = float("nan")
        arena.out.mul_(0.5).clamp_(min=0).add_(2**arena.x)
        arena.out.copy_(torch.where(arena.mask[:, None], arena.out, -1.0))
        F.one_hot(arena.index, num_classes=5)

    assert lint(arena, body) == []
