"""Whether a plugin can be listed and planned without torch: asked in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from omegaconf import OmegaConf

from dspark_factory.api import BackendPlugin, BackendSpec, BufferPlugin, BufferSpec
from dspark_factory.testing.results import CheckFailed

_SECONDS = 120

_CODE = """
import json, sys
from importlib import import_module
given = json.load(sys.stdin)

def refuse_heavy(doing):
    heavy = sorted({"torch", "transformers"} & set(sys.modules))
    if heavy:
        print(f"{doing} imports {' and '.join(heavy)}")
        raise SystemExit(3)

from omegaconf import OmegaConf
from dspark_factory.config import load_config
from dspark_factory.planning.resolve import resolve_dims
from dspark_factory.registry import load_object

refuse_heavy("dspark_factory")
module, name = given["spec"]
spec_type = load_object(f"{module}:{name}")
refuse_heavy(f"importing {module}, where its descriptor and options are read,")
subject = load_object(given["path"])()
refuse_heavy(f"importing {given['path'].partition(':')[0]}")
merged = OmegaConf.merge(OmegaConf.structured(spec_type), OmegaConf.create(given["values"]))
spec = OmegaConf.to_object(merged)
for overrides in given["situations"]:
    dims = resolve_dims(load_config(overrides))
    if given["backend"]:
        if not subject.reasons(dims):
            list(subject.requests(spec, dims))
        refuse_heavy("reasons() or requests()")
    else:
        enabled = subject.gate(spec, dims).enabled
        refuse_heavy("gate()")
        if enabled:
            list(subject.requests(spec, dims))
            refuse_heavy("requests()")
"""


def refuse_torch(
    plugin: BufferPlugin | BackendPlugin, spec: BufferSpec | BackendSpec, situations: Sequence[Sequence[str]]
) -> None:
    """Read the options, import the implementation and plan, all without torch.

    Raises:
        CheckFailed: torch or transformers was imported, or something failed; says at which point.
    """
    backend = isinstance(plugin, BackendPlugin)
    given = {
        "spec": [type(spec).__module__, type(spec).__qualname__],
        "path": plugin.backend if backend else plugin.provider,
        "values": OmegaConf.to_yaml(OmegaConf.structured(spec)),
        "situations": [list(overrides) for overrides in situations],
        "backend": backend,
    }
    finished = subprocess.run(
        [sys.executable, "-c", _CODE],
        input=json.dumps(given),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if finished.returncode == 3:
        raise CheckFailed(
            f"{plugin.name!r}: {finished.stdout.strip()}; import torch only inside functions that run after "
            "planning, or under TYPE_CHECKING"
        )
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise CheckFailed(f"{plugin.name!r} cannot be planned in a process without torch: {last}")
