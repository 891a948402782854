"""Schema of the configuration: the dataclasses are the documentation of every option.

YAML files hold values only. The classes are not frozen, because Hydra merges into them; what is computed from
them (:class:`~dspark_factory.planning.dims.Dims`, plans) is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

from dspark_factory.api import BackendSpec, BufferSpec


class OutputFormat(Enum):
    """What a task prints on stdout."""

    text = "text"
    json = "json"


class VerifyLayout(Enum):
    """How target verify lays out the rows of a batch."""

    uniform = "uniform"
    ragged = "ragged"


class BucketPolicy(Enum):
    """What happens to a batch that fits no captured bucket."""

    error = "error"
    eager = "eager"
    split = "split"


class DeviceKind(Enum):
    """Where tensors live."""

    cpu = "cpu"
    cuda = "cuda"


class FloatType(Enum):
    """Floating-point type of activations or KV."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class CompressedLayerType(Enum):
    """Attention layer types, named as in DeepSeek-V4 checkpoints."""

    sliding_attention = "sliding_attention"
    compressed_sparse_attention = "compressed_sparse_attention"
    heavily_compressed_attention = "heavily_compressed_attention"


def _at_least(low: float, default: Any, *, above: bool = False) -> Any:
    """Field with a lower bound, checked together with every other rule."""
    return field(default=default, metadata={"above" if above else "low": low})


@dataclass(kw_only=True)
class TaskSpec:
    """What to do; ``task=`` chooses the file, its options follow as ``task.<option>=``."""

    kind: str = MISSING
    """Registered name of the task."""


@dataclass(kw_only=True)
class GenerateTask(TaskSpec):
    """Decode the workload's prompts, with and without speculation, and compare the two."""

    kind: str = "generate"
    compare: bool = True
    """Decode without speculation too: gives the speed ratio and the lossless check (greedy only)."""
    show_text: bool = True
    """Print the generated text."""


@dataclass(kw_only=True)
class PlanTask(TaskSpec):
    """Dry run: every buffer, its bytes, why it is on or off. Needs no torch and allocates nothing."""

    kind: str = "plan"


@dataclass(kw_only=True)
class BuildTask(TaskSpec):
    """Build, warm up, capture and replay once, without decoding a workload."""

    kind: str = "build"


@dataclass(kw_only=True)
class MeasureTask(TaskSpec):
    """Decode speed at each batch size, over several rounds: what a sweep compares. Compares no outputs."""

    kind: str = "measure"
    repeats: int = _at_least(1, 5)
    """Rounds that count; one more runs first, to warm up."""
    requests: list[int] = field(default_factory=list)
    """Batch sizes; empty is pipeline.capture_requests."""
    baseline: bool = True
    """Decode without speculation too, right after each measurement: jobs are compared by their ratio
    to it, so that a machine that slows down between jobs decides nothing."""


@dataclass(kw_only=True)
class RecommendTask(TaskSpec):
    """Recommend num_draft_tokens by batch size from an acceptance log and a table of step costs; runs no model."""

    kind: str = "recommend"
    acceptance_log: str = MISSING
    """CSV or JSON lines with the accepted drafts of each request and verify step, without the bonus."""
    cost_table: str = MISSING
    """JSON or CSV with the milliseconds of a step by requests and num_draft_tokens."""
    noise_limit: float = _at_least(0, 0.15, above=True)
    """A count whose resampled speeds scatter more than this share of their median is left out."""
    tie: float = _at_least(0, 0.01)
    """Speeds closer than this share are equal, and the smaller count wins."""


@dataclass(kw_only=True)
class BenchTask(TaskSpec):
    """Decode speed beside the transformers library; without a checkpoint, attention beside other backends."""

    kind: str = "bench"
    repeats: int = _at_least(1, 3)
    """Rounds; each round runs every contender once, and ratios are taken within a round."""
    soak_steps: int = _at_least(0, 0)
    """Verify steps to run afterwards while watching memory; 0 skips this part."""
    transformers: bool = True
    """Include the library's own generate."""
    contenders: list[str] = field(default_factory=list)
    """Without a checkpoint: backends beside the configured one; empty is flash_mla where it serves, and reference."""
    requests: list[int] = field(default_factory=lambda: [1, 8, 32, 64, 128])
    """Without a checkpoint: batch sizes."""
    contexts: list[int] = field(default_factory=lambda: [4096, 32768, 131072])
    """Without a checkpoint: tokens of each request in a step of the whole stack; what has no room is left out."""
    plot: str | None = None
    """SVG file to draw the attention benchmark into; needs pip install 'dspark-factory[plots]'."""


@dataclass(kw_only=True)
class TrainTargetTask(TaskSpec):
    """Train a small target from a text folder and save it as a checkpoint folder."""

    kind: str = "train_target"
    text_folder: str | None = None
    """Folder of text files; null takes CPython's own standard library."""
    checkpoint_out: str = MISSING
    """Folder to write; must be empty or absent."""
    steps: int = _at_least(1, 2000)
    """Optimizer steps."""
    batch_size: int = _at_least(1, 32)
    """Sequences per step."""
    sequence_length: int = _at_least(2, 1024)
    """Tokens per sequence."""
    learning_rate: float = _at_least(0, 2.0e-3, above=True)
    """Peak of the learning rate; it warms up linearly and falls to a twentieth along a cosine."""
    warmup_steps: int = _at_least(0, 100)
    """Steps of the linear warm-up."""
    weight_decay: float = _at_least(0, 0.05)
    """Decoupled weight decay of AdamW."""
    seed: int = 0
    """Seed of initial weights and of the batches drawn."""


@dataclass(kw_only=True)
class DsparkShape:
    """Dimensions of the checkpoint's DSpark drafter."""

    block_size: int = field(default=MISSING, metadata={"low": 1})
    """Drafts per step that the drafter was trained for: a default, not a limit."""
    target_layer_ids: list[int] = MISSING
    """Target layers whose features are injected; one draft stage each."""
    markov_rank: int = MISSING
    """Rank of the Markov head."""


@dataclass(kw_only=True)
class ModelSpec:
    """Dimensions of a DeepSeek-V4 model, named as in its ``config.json``.

    With ``checkpoint`` set they are read from the folder, and any that is also given here must agree.
    """

    name: str = MISSING
    """Name in messages and records."""
    checkpoint: str | None = None
    """Checkpoint folder in the transformers format, or the name of a shipped one; null builds the attention
    stack with synthetic inputs."""
    vocab_size: int | None = _at_least(1, None)
    """Tokens of the vocabulary."""
    hidden_size: int | None = _at_least(1, None)
    """Channels of the residual streams."""
    layer_types: list[CompressedLayerType] | None = None
    """Attention type of every layer."""
    num_attention_heads: int | None = _at_least(1, None)
    """Query heads; one shared head holds keys and values."""
    head_dim: int | None = _at_least(1, None)
    """Channels of a head, and of a KV row."""
    qk_rope_head_dim: int | None = _at_least(1, None)
    """Last channels of a head that rotate with the position; even."""
    q_lora_rank: int | None = _at_least(1, None)
    """Rank of the query projection."""
    o_groups: int | None = _at_least(1, None)
    """Groups of heads in the output projection."""
    o_lora_rank: int | None = _at_least(1, None)
    """Rank of each group of the output projection."""
    sliding_window: int | None = _at_least(1, None)
    """Keys that a row sees in its window, itself included."""
    csa_ratio: int | None = _at_least(1, None)
    """Tokens per compressed entry in compressed sparse layers."""
    hca_ratio: int | None = _at_least(1, None)
    """Tokens per compressed entry in heavily compressed layers."""
    index_n_heads: int | None = _at_least(1, None)
    """Heads of the lightning indexer."""
    index_head_dim: int | None = _at_least(1, None)
    """Channels of an indexer head."""
    index_topk: int | None = _at_least(1, None)
    """Compressed entries that the indexer selects per row."""
    max_position_embeddings: int | None = _at_least(1, None)
    """Longest context that the model supports, in tokens."""
    rope_theta: float | None = None
    """Rotary base of sliding-window layers."""
    compress_rope_theta: float | None = None
    """Rotary base of compressing layers."""
    rope_scaling: dict[str, float] | None = None
    """YaRN of the compressed layers: factor, original_max_position_embeddings, beta_fast, beta_slow."""
    moe_intermediate_size: int | None = _at_least(1, None)
    """Channels inside an expert."""
    n_routed_experts: int | None = _at_least(1, None)
    """Routed experts per layer."""
    n_shared_experts: int | None = _at_least(1, None)
    """Experts that every token uses."""
    num_experts_per_tok: int | None = _at_least(1, None)
    """Routed experts per token."""
    routed_scaling_factor: float | None = None
    """Factor on the routed experts' output."""
    num_hash_layers: int | None = None
    """Leading layers that route by token id."""
    hc_mult: int | None = _at_least(1, None)
    """Residual streams of the hyper-connections."""
    hc_sinkhorn_iters: int | None = _at_least(1, None)
    """Sinkhorn iterations of the hyper-connections."""
    dspark: DsparkShape | None = None
    """Drafter that the checkpoint carries; null where it has none."""


@dataclass(kw_only=True)
class SpeculativeSpec:
    """Speculation; ``speculative=off`` or ``num_draft_tokens=null`` plans and allocates nothing speculative."""

    kind: str = "off"
    num_draft_tokens: int | None = None
    """Rows the target verifies per request and step: the anchor and block_size drafts, so at least 2.
    (Some engines count without the anchor.) null switches speculation off."""
    block_size: int | None = _at_least(1, None)
    """Drafts per request and step; null means num_draft_tokens - 1."""
    draft_token_candidates: list[int] = field(default_factory=list)
    """Further values of num_draft_tokens to plan and capture for; buffers fit the largest."""
    schedule: list[list[int | None]] = field(default_factory=list)
    """num_draft_tokens by batch size, as pairs: [[1,6],[8,4],[32,null]] verifies 6 rows per request in batches of 1 to
    7, 4 from 8 on, and decodes without drafts from 32 on; only graphs that it needs are captured. Empty uses
    num_draft_tokens at every size."""
    verify_layout: VerifyLayout = VerifyLayout.uniform
    """uniform: num_draft_tokens rows per request; ragged: each request its own count, padded to a tier."""
    ragged_shares: list[float] = field(default_factory=lambda: [0.5])
    """Ragged tiers to capture, as shares of the full row count (which is always captured)."""
    strict: bool = False
    """Turn warnings about risky settings into errors."""


@dataclass(kw_only=True)
class NgramSpec(SpeculativeSpec):
    """Drafts copied from after the longest earlier occurrence of the latest tokens; needs no model."""

    kind: str = "ngram"
    min_match: int = _at_least(1, 1)
    """Shortest match, in tokens, that proposes drafts."""
    max_match: int = _at_least(1, 64)
    """Longest match looked for, in tokens."""


@dataclass(kw_only=True)
class DsparkSpec(SpeculativeSpec):
    """Drafts from the checkpoint's DSpark drafter."""

    kind: str = "dspark"


@dataclass(kw_only=True)
class PipelineSpec:
    """Capacity, graph buckets and the start-up pipeline."""

    max_requests: int = _at_least(1, 4)
    """Request pool: requests that hold KV at the same time."""
    context_length: int = _at_least(2, 2048)
    """Most tokens of one request, prompt and output together."""
    capture_requests: list[int] = field(default_factory=lambda: [1, 2, 4])
    """Batch sizes to capture, in requests; the library multiplies by the verify width."""
    bucket_policy: BucketPolicy = BucketPolicy.eager
    """For a batch that fits no bucket: error, eager (one run outside a graph), split (several graphs)."""
    extend_rows: int = _at_least(1, 512)
    """Rows of one prefill step, over all its requests; longer prompts are processed in chunks."""
    page_tokens: int = _at_least(1, 256)
    """Tokens per page of the compressed pools; a multiple of every compress ratio."""
    kv_pool_tokens: int | None = _at_least(1, None)
    """Tokens that the compressed pools hold over all requests; null is max_requests × context_length."""
    warmup_runs: int = _at_least(1, 2)
    """Eager runs of every bucket before it is captured."""
    strict: bool = True
    """Fail in FREEZE when a requested bucket was not captured."""


@dataclass(kw_only=True)
class DeviceSpec:
    """Where and in which precision the model runs."""

    kind: DeviceKind = DeviceKind.cpu
    """cpu or cuda."""
    dtype: FloatType = FloatType.float32
    """Weights and activations."""
    kv_dtype: FloatType | None = None
    """KV pools; null is dtype."""
    memory_gib: float | None = _at_least(0, None, above=True)
    """Memory for buffers, in GiB: the plan says how many requests fit, and refuses what does not."""
    num_threads: int | None = _at_least(1, None)
    """CPU threads; null leaves the library's choice."""
    fused_kernels: bool = True
    """On CUDA: Triton kernels around attention where the model's dimensions allow; false runs the torch functions."""


@dataclass(kw_only=True)
class WorkloadSpec:
    """The prompts to decode, and how."""

    prompts: list[str] = field(default_factory=list)
    """Prompts to decode."""
    prompt: str | None = None
    """One prompt; replaces ``prompts``."""
    file: str | None = None
    """Text file with one prompt per line, or JSON lines with a "prompt" key; replaces ``prompts``."""
    max_new_tokens: int = _at_least(1, 256)
    """Tokens to produce per prompt."""
    temperature: float = _at_least(0, 0.0)
    """0 is greedy; above, exact rejection sampling at this softmax temperature."""
    seed: int = 0
    """Seed of sampling; each prompt draws numbers of its own."""
    ignore_end: bool = True
    """Keep decoding past the end-of-document token, so that runs are comparable."""


@dataclass(kw_only=True)
class Config:
    """A whole run."""

    task: TaskSpec = MISSING
    model: ModelSpec = MISSING
    speculative: SpeculativeSpec = MISSING
    backend: BackendSpec = MISSING
    buffers: dict[str, BufferSpec] = field(default_factory=dict)
    pipeline: PipelineSpec = MISSING
    device: DeviceSpec = MISSING
    workload: WorkloadSpec = MISSING
    output: OutputFormat = OutputFormat.text


TASKS: dict[str, type[TaskSpec]] = {
    "generate": GenerateTask,
    "plan": PlanTask,
    "build": BuildTask,
    "recommend": RecommendTask,
    "bench": BenchTask,
    "measure": MeasureTask,
    "train_target": TrainTargetTask,
}
SPECULATIVE: dict[str, type[SpeculativeSpec]] = {
    "off": SpeculativeSpec,
    "ngram": NgramSpec,
    "dspark": DsparkSpec,
}
