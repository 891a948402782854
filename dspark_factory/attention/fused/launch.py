"""Launching a Triton kernel: its decorator hides both the launch options and the types of arguments from a checker."""

from __future__ import annotations

from typing import Any


def launch(kernel: Any, grid: tuple[Any, ...], *arguments: Any, **options: Any) -> None:
    """``kernel[grid](*arguments, **options)``."""
    kernel[grid](*arguments, **options)
