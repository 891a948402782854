"""Many verify steps while memory is watched."""

from __future__ import annotations

import resource
import sys
from typing import Any

import torch

from dspark_factory.engine.decoder import Decoder
from dspark_factory.engine.prompts import Prompts
from dspark_factory.factory import Assembly
from dspark_factory.tasks.progress import progress

WARM_SHARE = 0.1
"""Share of the steps after which memory is expected to stand still."""


def soak(assembly: Assembly, prompts: Prompts, steps: int) -> dict[str, Any]:
    """Decode the prompts again and again until ``steps`` verify steps have run.

    Returns:
        Steps run, and the growth in bytes from the end of the warm share to the end: of the process's peak
        resident memory, and of the device's allocated memory where there is one; and whether addresses held.
    """
    done, warm = 0, None
    with progress("soak", steps, "steps") as advance:
        while done < steps:
            ran = Decoder(assembly, speculative=True).generate(prompts.tokens).steps
            done += ran
            advance(ran)
            if warm is None and done >= steps * WARM_SHARE:
                warm = _memory(assembly)
    assembly.pipeline.verify_addresses()
    assert warm is not None
    growth = {name: now - warm[name] for name, now in _memory(assembly).items()}
    return {"steps": done, "growth_nbytes": growth, "addresses_constant": True}


def _memory(assembly: Assembly) -> dict[str, int]:
    unit = 1 if sys.platform == "darwin" else 1024
    memory = {"peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
    if assembly.arena.device.type == "cuda":
        memory["device_allocated"] = torch.cuda.memory_allocated(assembly.arena.device)
    return memory
