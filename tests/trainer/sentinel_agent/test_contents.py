from __future__ import annotations

import hashlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from sentinel_agent.contents import BrokenCheckpoint, Verified, digest_of, non_finite, verify

INF, NAN = float("inf"), float("nan")


def finish(work: Generator[None, None, Verified]) -> Verified:
    """Runs a verification to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def checkpoint(**entries: torch.Tensor) -> dict[str, Any]:
    """A checkpoint with these weights and one optimizer."""
    state = {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2)}}
    return {"state_dict": entries, "optimizer_states": [{"state": state, "param_groups": []}], "epoch": 3}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file of torch.save's, of more than one chunk."""
    path = tmp_path / "a.ckpt"
    torch.save({"weights": torch.randn(600_000)}, path)
    return path


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_weight_that_is_not_finite_is_named(dtype: torch.dtype, value: float) -> None:
    """One bad number among many is found in every precision and named."""
    weight = torch.zeros(50, dtype=dtype)
    weight[49] = value
    assert non_finite(checkpoint(good=torch.ones(3), weight=weight), {"good", "weight"}) == "not finite: weight"


def test_largest_finite_numbers_are_fine() -> None:
    """Numbers at the end of the range are finite, also together; integers and 8-bit floats are no trouble."""
    entries = {
        "large": torch.full((100,), torch.finfo(torch.float32).max),
        "counts": torch.arange(3),
        "eight": torch.ones(3).to(torch.float8_e4m3fn),
        "none": torch.zeros(0),
    }
    assert non_finite(checkpoint(**entries), set(entries)) == ""


def test_infinity_may_be_meant_in_a_buffer() -> None:
    """An attention mask in a buffer is full of infinities; NaN is wrong there too."""
    assert non_finite(checkpoint(mask=torch.tensor([0.0, -INF])), {"weight"}) == ""
    assert non_finite(checkpoint(mask=torch.tensor([0.0, NAN])), {"weight"}) == "not finite: mask"


def test_moments_and_other_sections_are_looked_at() -> None:
    """A bad optimizer state is named by parameter; so are weights that a callback put beside the model's."""
    contents = checkpoint(weight=torch.ones(2))
    contents["optimizer_states"][0]["state"][0]["exp_avg"][1] = INF
    contents["current_model_state"] = {"weight": torch.tensor([NAN])}
    assert non_finite(contents, {"weight"}) == "not finite: weight, exp_avg of parameter 0 in optimizer 0"


def test_only_the_first_names_are_told() -> None:
    """A model that is bad everywhere does not make a page of names."""
    entries = {f"w{index}": torch.tensor([NAN]) for index in range(9)}
    assert non_finite(checkpoint(**entries), set(entries)) == "not finite: w0, w1, w2 and 6 more"


def test_whole_file_is_verified_in_turns(saved: Path) -> None:
    """A complete file gives its digest and size, and gives the thread back between chunks."""
    expected = f"sha256:{hashlib.sha256(saved.read_bytes()).hexdigest()}"
    assert finish(verify(saved)) == Verified(expected, saved.stat().st_size)
    assert digest_of(saved) == expected
    assert len(list(verify(saved))) > 4


@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_cut_off_file_is_broken(saved: Path, kept: float) -> None:
    """A file that lost its end is no checkpoint."""
    contents = saved.read_bytes()
    saved.write_bytes(contents[: int(len(contents) * kept)])
    with pytest.raises(BrokenCheckpoint, match="damaged or incomplete"):
        finish(verify(saved))


def test_flipped_bit_is_found(saved: Path) -> None:
    """The archive's own sums tell a bit that flipped between the writing and the first digest."""
    contents = bytearray(saved.read_bytes())
    contents[len(contents) // 2] ^= 16
    saved.write_bytes(contents)
    with pytest.raises(BrokenCheckpoint, match="damaged or incomplete"):
        finish(verify(saved))


def test_other_format_has_its_digest_alone(tmp_path: Path) -> None:
    """A file that is no archive cannot be looked into: its digest is what is known."""
    path = tmp_path / "other.ckpt"
    path.write_bytes(b"weights")
    assert finish(verify(path)).size_bytes == 7
