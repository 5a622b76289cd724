from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from sentinel_reference.data import SEPARATOR, DataError, PackedSequences, load_tokens


def _packed(tokens: torch.Tensor, *, seed: int = 0, vocabulary_size: int = 257) -> PackedSequences:
    return PackedSequences(tokens, source="here", context_tokens=4, vocabulary_size=vocabulary_size, seed=seed)


def _stream(count: int) -> torch.Tensor:
    return torch.arange(count).to(torch.uint16)


def test_folder_is_read_in_order_with_a_separator_after_each_file(tmp_path: Path) -> None:
    """Text files follow each other by name through subfolders; hidden, binary and empty ones are left out."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.txt").write_bytes(b"two")
    (tmp_path / "a.md").write_bytes(b"one")
    (tmp_path / ".hidden").write_bytes(b"no")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\x00")
    (tmp_path / "empty").touch()
    assert load_tokens(tmp_path, limit_bytes=None).tolist() == [*b"one", SEPARATOR, *b"two", SEPARATOR]


def test_text_is_read_up_to_the_limit(tmp_path: Path) -> None:
    """No more bytes are read than allowed, over all files together."""
    for name in "abc":
        (tmp_path / name).write_bytes(b"four")
    assert load_tokens(tmp_path, limit_bytes=6).tolist() == [*b"four", SEPARATOR, *b"fo", SEPARATOR]


def test_standard_library_is_there_without_any_data() -> None:
    """By default there is real text: Python source, the same at every call."""
    tokens = load_tokens(None, limit_bytes=100_000)
    assert b"import" in bytes(tokens[tokens.long() < SEPARATOR].to(torch.uint8).tolist())
    assert torch.equal(tokens, load_tokens(None, limit_bytes=100_000))


def test_bin_is_taken_as_it_is(tmp_path: Path) -> None:
    """A .bin of 16-bit ids gives just these ids."""
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"".join(token.to_bytes(2, "little") for token in (0, 50_256, 65_535)))
    assert load_tokens(path, limit_bytes=None).tolist() == [0, 50_256, 65_535]


@pytest.mark.parametrize("content", [b"", b"abc"])
def test_bin_with_half_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    """A .bin that cannot be 16-bit ids is named with its size and how to write it right."""
    path = tmp_path / "tokens.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{re.escape(str(path))} has {len(content)} bytes.*uint16"):
        load_tokens(path, limit_bytes=None)


@pytest.mark.parametrize("name", ["empty", "binary"])
def test_folder_without_text_is_refused(tmp_path: Path, name: str) -> None:
    """An empty folder and one without text are named, with what to pass instead."""
    folder = tmp_path / name
    folder.mkdir()
    if name == "binary":
        (folder / "weights.pt").write_bytes(bytes(100))
    with pytest.raises(DataError, match=rf"no text in {re.escape(str(folder))}: pass --data"):
        load_tokens(folder, limit_bytes=None)


def test_missing_path_is_refused(tmp_path: Path) -> None:
    """A path that is not there is named."""
    with pytest.raises(DataError, match="nowhere does not exist"):
        load_tokens(tmp_path / "nowhere", limit_bytes=None)


def test_text_shorter_than_a_sequence_is_refused() -> None:
    """Too little text is told with how much one sequence takes."""
    with pytest.raises(DataError, match=r"here has 4 tokens, but one sequence takes 5"):
        _packed(_stream(4))


def test_token_outside_the_vocabulary_is_refused() -> None:
    """An id that the model has no embedding for stops with its value and place, before it can index out of bounds."""
    data = _packed(_stream(9), vocabulary_size=8)
    with pytest.raises(DataError, match=r"here has token id 8 between tokens 4 and 9.*vocabulary has 8"):
        [data[position] for position in range(2)]


def test_targets_are_the_tokens_that_follow() -> None:
    """Each target is the next token, also across the end of its sequence."""
    item = _packed(_stream(5))[0]
    assert (item["tokens"].tolist(), item["targets"].tolist(), int(item["position"])) == ([0, 1, 2, 3], [1, 2, 3, 4], 0)


def test_every_pass_sees_every_sequence_once_in_an_order_of_its_own() -> None:
    """Three passes over the text have the same sequences and three different orders."""
    data = _packed(_stream(201))
    passes = [[int(data[position]["tokens"][0]) for position in range(start, start + 50)] for start in (0, 50, 100)]
    assert all(sorted(each) == list(range(0, 200, 4)) for each in passes)
    assert len({tuple(each) for each in passes}) == 3


def test_position_alone_says_what_lies_there() -> None:
    """A position gives the same sequence whatever was read before it; another seed gives another order."""
    data = _packed(_stream(201))
    forward = [data[position]["tokens"].tolist() for position in range(100)]
    assert [data[position]["tokens"].tolist() for position in reversed(range(100))] == forward[::-1]
    other = _packed(_stream(201), seed=1)
    assert [other[position]["tokens"].tolist() for position in range(100)] != forward
