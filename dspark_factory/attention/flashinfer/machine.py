"""What the kernels need of the machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from os import environ
from pathlib import Path

INSTALL = "pip install 'dspark-factory[cuda]'"


def machine_reasons() -> Sequence[str]:
    """Why the kernels cannot be built or run here; empty when they can."""
    import torch

    missing = [name for name in ("flashinfer", "tvm_ffi") if find_spec(name) is None]
    reasons = [f"Python package {name} is missing; {INSTALL}" for name in missing]
    if _compiler() is None:
        reasons.append(
            "no CUDA compiler: nvcc is not on PATH and CUDA_HOME is not set; install the CUDA toolkit"
        )
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        reasons.append(
            f"compute capability {capability[0]}.{capability[1]} of {torch.cuda.get_device_name()} is below 8.0; "
            "use backend=reference"
        )
    return reasons


def _compiler() -> str | None:
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home and (Path(home) / "bin" / "nvcc").exists():
        return home
    return shutil.which("nvcc")
