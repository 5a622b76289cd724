"""Text as an endless sequence of numbered training sequences.

Every byte is a token, and one more token separates files; a `.bin` of 16-bit token ids is taken as it is. The stream
of tokens is cut into sequences that fill the context, without padding, and each pass over them has an order of its
own, drawn from the seed. What lies at a *position*, counted in sequences since the start of training, is thus a
function of the position alone: a run, its resume and its replay see the same data, and a position names a sequence
for good.
"""

from __future__ import annotations

import sysconfig
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.utils.data import Dataset

SEPARATOR: Final = 256
"""The token after each file; bytes are 0 to 255."""
ENDLESS_SEQUENCES: Final = 1 << 40
"""The length of every data set: the optimizer's steps end a run, not its data. Lightning loses the position of a loader
without a length, since it then looks one batch ahead."""
BINARY_SAMPLE_BYTES: Final = 8_000
"""A file with a zero byte this early is no text (git's rule, buffer_is_binary)."""


class DataError(ValueError):
    """The data cannot be trained on; the message names the path and the remedy."""


def load_tokens(path: Path | None, *, limit_bytes: int | None) -> Tensor:
    """Read a one-dimensional tensor of token ids, uint16.

    Args:
        path: a `.bin` of uint16 token ids, a text file, or a folder whose text files are read in the order of their
            names, hidden ones apart; None for the source of the running Python's standard library.
        limit_bytes: how much text to read at most; a `.bin` is mapped into memory, not read.

    Raises:
        DataError: there is no text, or the `.bin` holds half a token.
    """
    if path is None:
        library = Path(sysconfig.get_path("stdlib"))
        return _read_text(sorted(library.glob("*.py")), library, limit_bytes)
    if path.suffix == ".bin":
        return _map_tokens(path)
    if path.is_file():
        return _read_text([path], path, limit_bytes)
    if not path.is_dir():
        raise DataError(f"{path} does not exist: pass a folder of text, a text file or a .bin of token ids")
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file.relative_to(path)))
    return _read_text(files, path, limit_bytes)


def _map_tokens(path: Path) -> Tensor:
    size_bytes = path.stat().st_size if path.is_file() else 0
    if size_bytes == 0 or size_bytes % 2:
        raise DataError(
            f"{path} has {size_bytes:,} bytes, but a .bin holds uint16 token ids, two bytes each: "
            "write it again (numpy: ids.astype('<u2').tofile(path))"
        )
    return torch.from_file(str(path), shared=False, size=size_bytes // 2, dtype=torch.uint16)


def _read_text(files: Iterable[Path], source: Path, limit_bytes: int | None) -> Tensor:
    parts: list[Tensor] = []
    left_bytes = limit_bytes
    for file in files:
        with file.open("rb") as opened:
            content = bytearray(opened.read(left_bytes))
        if not content or 0 in content[:BINARY_SAMPLE_BYTES]:
            continue
        parts += [
            torch.frombuffer(content, dtype=torch.uint8).to(torch.uint16),
            torch.tensor([SEPARATOR]).to(torch.uint16),
        ]
        if left_bytes is not None:
            left_bytes -= len(content)
            if left_bytes == 0:
                break
    if not parts:
        raise DataError(f"no text in {source}: pass --data with a folder that holds some, or a .bin of token ids")
    return torch.cat(parts)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


class PackedSequences(Dataset[dict[str, Tensor]]):
    """Sequences by position.

    An item has `tokens` and `targets`, each (context_tokens,) int64, where a target is the token that follows, and
    its `position`. A batch of them has a row for each: tokens (B, T), targets (B, T), position (B,).

    Args:
        tokens: the stream, (tokens,) uint16.
        source: where it comes from, for messages.
        context_tokens: T.
        vocabulary_size: every token id must be below it.
        seed: of the order.

    Raises:
        DataError: fewer tokens than one sequence takes, or, at an item, a token id outside the vocabulary.
    """

    def __init__(self, tokens: Tensor, *, source: str, context_tokens: int, vocabulary_size: int, seed: int) -> None:
        self.sequences = (len(tokens) - 1) // context_tokens
        if self.sequences < 1:
            raise DataError(
                f"{source} has {len(tokens):,} tokens, but one sequence takes {context_tokens + 1:,}: add more text"
            )
        self._tokens = tokens
        self._source = source
        self._context_tokens = context_tokens
        self._vocabulary_size = vocabulary_size
        self._seed = seed
        self._pass, self._order = 0, self._order_of(0)

    def __len__(self) -> int:
        return ENDLESS_SEQUENCES

    def __getitem__(self, position: int) -> dict[str, Tensor]:
        pass_, place = divmod(position, self.sequences)
        if pass_ != self._pass:
            self._pass, self._order = pass_, self._order_of(pass_)
        start = int(self._order[place]) * self._context_tokens
        window = self._tokens[start : start + self._context_tokens + 1].long()
        highest = int(window.max())
        if highest >= self._vocabulary_size:
            raise DataError(
                f"{self._source} has token id {highest} between tokens {start:,} and {start + len(window):,}, but the "
                f"model's vocabulary has {self._vocabulary_size:,}: choose a preset with a larger one, or other data"
            )
        return {"tokens": window[:-1], "targets": window[1:], "position": torch.tensor(position)}

    def _order_of(self, pass_: int) -> Tensor:
        seed = zlib.crc32(f"{self._seed} {pass_}".encode())  # a generator on the CPU heeds 32 bits of its seed
        return torch.randperm(self.sequences, generator=torch.Generator().manual_seed(seed))
