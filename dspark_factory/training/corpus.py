"""Text folder → token stream: which files train, which are held out, how batches are drawn."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from dspark_factory.errors import TaskError

HELD_OUT_SHARE = 16
"""One file of this many is held out; the choice is a hash of its name, so it never depends on order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Byte tokens of every document, each ended by ``end_token``.

    Shapes: ``train`` and ``held_out`` are ``[tokens]`` int16 on the CPU.
    """

    train: torch.Tensor
    held_out: torch.Tensor
    num_files: int


def standard_library() -> Path:
    """Folder of CPython's own standard library, the default corpus."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_corpus(
    folder: Path, *, end_token: int, suffixes: tuple[str, ...] = (".py", ".txt", ".md")
) -> Corpus:
    """Read every text file below ``folder``, without tests and third-party packages.

    Raises:
        TaskError: the folder holds no file with one of ``suffixes``.
    """
    parts: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    num_files = 0
    for path in _text_files(folder, suffixes):
        document = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).to(torch.int16)
        name = str(path.relative_to(folder)).encode()
        held_out = hashlib.sha256(name).digest()[0] % HELD_OUT_SHARE == 0
        parts[held_out] += [document, torch.tensor([end_token], dtype=torch.int16)]
        num_files += 1
    if not parts[True] or not parts[False]:
        raise TaskError(
            f"task.text_folder={folder} has {num_files} files ending in {', '.join(suffixes)}; "
            "training needs some to train on and some to hold out: name a folder with more text"
        )
    return Corpus(train=torch.cat(parts[False]), held_out=torch.cat(parts[True]), num_files=num_files)


def _text_files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    excluded = {"test", "tests", "site-packages", "dist-packages", "idle_test", "__pycache__"}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in suffixes or not path.is_file() or path.stat().st_size == 0:
            continue
        if not excluded.intersection(path.relative_to(folder).parts[:-1]):
            yield path


def draw_batch(
    tokens: torch.Tensor, *, batch_size: int, sequence_length: int, generator: torch.Generator
) -> torch.Tensor:
    """Random windows of the stream, ``[batch_size, sequence_length]`` int64."""
    starts = torch.randint(0, len(tokens) - sequence_length + 1, (batch_size, 1), generator=generator)
    return tokens[starts + torch.arange(sequence_length)].long()


def held_out_batches(tokens: torch.Tensor, *, batch_size: int, sequence_length: int) -> torch.Tensor:
    """Consecutive windows of the held-out stream, ``[batches, batch_size, sequence_length]`` int64."""
    size = batch_size * sequence_length
    usable = max(len(tokens) // size, 1) * size
    return tokens[:usable].long().view(-1, min(batch_size, usable // sequence_length), sequence_length)
