"""The console that tasks print on, and quantities as people read them."""

from __future__ import annotations

import os
import sys

from rich.console import Console

PIPED_WIDTH = 160
"""Columns of output that is no terminal: wide enough that every table row stays on one line."""


def output_console(*, silent: bool = False) -> Console:
    """Console on stdout: no colour unless it is a terminal and ``NO_COLOR`` is unset.

    Args:
        silent: print nothing, because stdout belongs to the record.
    """
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(quiet=silent, width=width, highlight=False)


def discard_output() -> None:
    """Let go of stdout after its reader has, such as ``head``: a second attempt at exit would print a warning."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def readable_nbytes(nbytes: float) -> str:
    """Bytes with a binary prefix: ``134.9 MiB``."""
    size, prefix = float(nbytes), ""
    for larger in ("Ki", "Mi", "Gi", "Ti"):
        if size < 1024:
            break
        size, prefix = size / 1024, larger
    return f"{size:.1f} {prefix}B" if prefix else f"{nbytes:g} B"
