"""Whether a checkpoint holds what it should: finite numbers when it is saved, whole on disk afterwards."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

CHUNK_BYTES: Final = 1 << 20
NAMES_SHOWN: Final = 3
OPTIMIZER: Final = "optimizer_states"


class BrokenCheckpoint(Exception):
    """A checkpoint is not what was saved; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A file that is whole."""

    digest: str
    size_bytes: int


def non_finite(checkpoint: Mapping[str, Any], trained: Collection[str]) -> str:
    """What is not finite among the weights and the optimizers' states, in words; empty if all is well.

    Args:
        checkpoint: with ``state_dict`` and ``optimizer_states``.
        trained: the names of the parameters. Other entries are buffers, where an infinity may be meant (an attention
            mask) and only NaN is wrong.
    """
    bad = [
        name
        for section, name, tensor in _tensors(checkpoint)
        if not _is_fine(tensor, may_be_infinite=section != OPTIMIZER and name not in trained)
    ]
    more = f" and {len(bad) - NAMES_SHOWN} more" if len(bad) > NAMES_SHOWN else ""
    return f"not finite: {', '.join(bad[:NAMES_SHOWN])}{more}" if bad else ""


def digest_of(path: Path) -> str:
    """``sha256:`` and the file's digest.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def verify(path: Path) -> Generator[None, None, Verified]:
    """Reads a file twice, a chunk at a turn: its digest, then whether it is a complete archive with intact members.

    Raises:
        BrokenCheckpoint: it is cut off or altered.
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        is_archive = file.read(2) == b"PK"  # as torch.save writes; another format has its digest alone
        file.seek(0)
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            yield
    if is_archive and torch.serialization.get_crc32_options():
        yield from _check_archive(path)
    return Verified(f"sha256:{digest.hexdigest()}", path.stat().st_size)


def _check_archive(path: Path) -> Generator[None]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    while file.read(CHUNK_BYTES):
                        yield
    except (zipfile.BadZipFile, EOFError) as error:
        raise BrokenCheckpoint(f"the file is damaged or incomplete: {error}") from None


def _tensors(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Tensors with the section and the name that they stand under; callbacks may add sections with other weights."""
    for section, entries in checkpoint.items():
        for name, value in entries.items() if isinstance(entries, Mapping) else ():
            if isinstance(value, torch.Tensor):
                yield section, str(name), value
    for index, optimizer in enumerate(checkpoint.get("optimizer_states", ())):
        for parameter, state in optimizer.get("state", {}).items():
            for name, value in state.items() if isinstance(state, Mapping) else ():
                if isinstance(value, torch.Tensor):
                    yield OPTIMIZER, f"{name} of parameter {parameter} in optimizer {index}", value


def _is_fine(tensor: torch.Tensor, *, may_be_infinite: bool) -> bool:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    numbers = tensor.float() if tensor.itemsize == 1 else tensor  # no norm of 8-bit floats
    largest = float(torch.linalg.vector_norm(numbers, math.inf))  # one pass, and NaN wins over every number
    return not math.isnan(largest) if may_be_infinite else math.isfinite(largest)
