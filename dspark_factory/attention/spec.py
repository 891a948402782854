"""Options of the built-in backends."""

from __future__ import annotations

from dataclasses import dataclass

from dspark_factory.api import BackendSpec


@dataclass(kw_only=True)
class ReferenceBackendSpec(BackendSpec):
    """Plain torch with fp32 accumulation: the truth for every other backend."""

    kind: str = "reference"
