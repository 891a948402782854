"""The workload's prompts as tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from dspark_factory.config.model_shape import checkpoint_folder
from dspark_factory.config.schema import ModelSpec, WorkloadSpec
from dspark_factory.errors import CheckpointError, TaskError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Texts, their tokens, and the tokenizer that turns output into text again."""

    texts: list[str]
    tokens: list[list[int]]
    tokenizer: Any

    @property
    def end_token(self) -> int | None:
        """Token that ends a document."""
        return self.tokenizer.eos_token_id

    def decode(self, tokens: list[int]) -> str:
        """Text of produced tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


def load_prompts(model: ModelSpec, workload: WorkloadSpec) -> Prompts:
    """Read the workload and tokenize it with the checkpoint's tokenizer.

    Raises:
        TaskError: the model has no checkpoint, or the workload file no prompt.
        CheckpointError: the checkpoint has no tokenizer that can be loaded.
    """
    if model.checkpoint is None:
        raise TaskError(
            f"model={model.name} has dimensions but no checkpoint to decode with; choose model=tiny, or "
            "model=checkpoint model.checkpoint=FOLDER (task=plan and task=build work without one)"
        )
    folder = checkpoint_folder(model.checkpoint)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"model.checkpoint={model.checkpoint}: cannot load a tokenizer: {error}"
        ) from error
    texts = _texts(workload)
    return Prompts(texts=texts, tokens=[tokenizer(text).input_ids for text in texts], tokenizer=tokenizer)


def _texts(workload: WorkloadSpec) -> list[str]:
    if workload.prompt is not None:
        return [workload.prompt]
    if workload.file is None:
        return list(workload.prompts)
    path = Path(workload.file).expanduser()
    texts = [
        _line(line, path, number) for number, line in enumerate(path.read_text().splitlines(), 1) if line
    ]
    if not texts:
        raise TaskError(f"workload.file={workload.file} holds no prompt; write one per line")
    return texts


def _line(line: str, path: Path, number: int) -> str:
    """A prompt line: plain text, or JSON lines with a "prompt" key."""
    if path.suffix not in (".jsonl", ".json"):
        return line
    try:
        prompt = json.loads(line)["prompt"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise TaskError(f'{path} line {number} must be a JSON object with a "prompt" key') from error
    if not isinstance(prompt, str):
        raise TaskError(f'{path} line {number}: "prompt" must be text')
    return prompt
