"""Built-in buffer providers besides KV state: per-step inputs, verify layout, outputs."""

from dspark_factory.api import BufferPlugin, BufferSpec
from dspark_factory.buffers.logits import LogitsSpec


def _plugin(
    name: str, provider: str, *, spec: type[BufferSpec] = BufferSpec, on_demand: bool = False
) -> BufferPlugin:
    return BufferPlugin(
        name=name, spec=spec, provider=f"dspark_factory.buffers.{provider}", on_demand=on_demand
    )


PLUGINS = (
    _plugin("step_inputs", "step_inputs:StepInputs"),
    _plugin("extend_chunks", "extend_chunks:ExtendChunks"),
    _plugin("extend_seq_lens", "extend_seq_lens:ExtendSeqLens"),
    _plugin("extend_start_loc", "extend_start_loc:ExtendStartLoc"),
    _plugin("sampling_inputs", "sampling_inputs:SamplingInputs"),
    _plugin("verify_mask", "verify_mask:VerifyMask", on_demand=True),
    _plugin("target_tokens", "step_outputs:TargetTokens"),
    _plugin("accept_lens", "step_outputs:AcceptLens"),
    _plugin("logits", "logits:Logits", spec=LogitsSpec),
)
