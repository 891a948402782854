"""Providers without which a step cannot run; switching one off is refused in the plan, not met in the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dspark_factory.api import Gate
from dspark_factory.planning.dims import Dims, LayerType

NEEDED: dict[str, Callable[[Dims], bool]] = {
    "step_inputs": lambda dims: True,
    "extend_chunks": lambda dims: True,
    "target_tokens": lambda dims: True,
    "page_table": lambda dims: dims.has_compressed_layers,
    "compressor_state": lambda dims: dims.has_compressed_layers,
    "index_keys": lambda dims: dims.count(LayerType.CSA) > 0,
    "extend_seq_lens": lambda dims: dims.speculation,
    "accept_lens": lambda dims: dims.speculation,
    "extend_start_loc": lambda dims: dims.ragged,
    "sampling_inputs": lambda dims: dims.sampling,
}


def missing_providers(gates: Mapping[str, Gate], dims: Dims, kv: str) -> list[str]:
    """One reason for each needed provider that is off or not selected; ``kv`` is the one that keeps KV rows."""
    reasons = []
    for name, needed in {kv: lambda dims: True, **NEEDED}.items():
        gate = gates.get(name)
        if not needed(dims) or (gate is not None and gate.enabled):
            continue
        if gate is None:
            reasons.append(
                f"buffers.{name} is not selected, but every step needs it; keep default in buffers=[default,…]"
            )
        else:
            reasons.append(f"buffers.{name} is off ({gate.reason}), but this configuration's steps need it")
    return reasons
