"""The plugins' sources on the import path, so that their tests run without an installation."""

from __future__ import annotations

import os

# Workers share the cores; a second thread in each would only wait for the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU, Triton kernels run in its interpreter; it must know before it is imported.
os.environ.setdefault("TRITON_INTERPRET", "0" if os.path.exists("/dev/nvidia0") else "1")

import sys
from pathlib import Path

sys.path[:0] = [str(path) for path in sorted(Path(__file__).parent.glob("*/src"))]
