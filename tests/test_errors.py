"""Errors are data: they survive a trip to another process with their fields and their message."""

from __future__ import annotations

import copy

import pytest

from dspark_factory.errors import (
    AllocationAfterSeal,
    CaptureError,
    ConfigError,
    DsparkError,
    FeatureDisabled,
    StageOrderError,
)

ERRORS = [
    ConfigError(["first", "second"]),
    FeatureDisabled("mask", "nobody reads it"),
    AllocationAfterSeal("lazy", "late"),
    StageOrderError("CONSTRUCT", "CAPTURE", "AUTOTUNE is next"),
    CaptureError("plain"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_fields_and_message_when_it_is_copied_by_reduction(error):
    other = copy.copy(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)
    assert isinstance(other, DsparkError)
