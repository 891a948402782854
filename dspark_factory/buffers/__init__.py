"""Built-in buffer providers besides KV state: per-step inputs, verify layout, outputs.

Each descriptor is an entry point of this distribution (``pyproject.toml``).
"""

from dspark_factory.api import BufferPlugin, BufferSpec
from dspark_factory.buffers.logits import LogitsSpec


def _plugin(name: str, provider: str, *, spec: type[BufferSpec] = BufferSpec) -> BufferPlugin:
    return BufferPlugin(name=name, spec=spec, provider=f"dspark_factory.buffers.{provider}")


STEP_INPUTS = _plugin("step_inputs", "step_inputs:StepInputs")
EXTEND_CHUNKS = _plugin("extend_chunks", "extend_chunks:ExtendChunks")
EXTEND_SEQ_LENS = _plugin("extend_seq_lens", "extend_seq_lens:ExtendSeqLens")
EXTEND_START_LOC = _plugin("extend_start_loc", "extend_start_loc:ExtendStartLoc")
SAMPLING_INPUTS = _plugin("sampling_inputs", "sampling_inputs:SamplingInputs")
TARGET_TOKENS = _plugin("target_tokens", "step_outputs:TargetTokens")
ACCEPT_LENS = _plugin("accept_lens", "step_outputs:AcceptLens")
LOGITS = _plugin("logits", "logits:Logits", spec=LogitsSpec)
