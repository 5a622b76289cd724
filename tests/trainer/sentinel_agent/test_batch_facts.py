from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

from sentinel_agent.batch_facts import fingerprint, first_tensor, token_count

IDS = torch.arange(12).reshape(3, 4)
IMAGES = torch.rand(3, 1, 2, 2)
Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    "batch", [IMAGES, [IMAGES, IDS], (IMAGES, IDS), {"pixels": IMAGES, "y": IDS}, ({"a": [IMAGES]},), Pair(IMAGES, IDS)]
)
def test_first_tensor_of_usual_batches(batch: Any) -> None:
    """In tensors, lists, tuples, mappings and their nestings the first tensor is found."""
    assert first_tensor(batch) is IMAGES


@pytest.mark.parametrize("batch", [None, "text", [], {}, 3, [[]], object()])
def test_batch_without_a_tensor_tells_nothing(batch: Any) -> None:
    """Anything else is left alone."""
    assert first_tensor(batch) is None
    assert token_count(batch) is None


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        (IDS, 12),
        ((IDS, IDS), 12),
        ({"labels": IMAGES, "input_ids": IDS}, 12),
        (IMAGES, None),
        ((torch.zeros(3, 4), IDS), None),
        (torch.zeros(3, 4, dtype=torch.bool), None),
        ({"labels": IDS}, None),
    ],
)
def test_tokens_only_where_they_are_plain(batch: Any, tokens: int | None) -> None:
    """Tokens are counted in 2-D integer tensors under the usual names, and never guessed."""
    assert token_count(batch) == tokens


def test_fingerprint_tells_batches_apart_and_counts_all_micro_batches() -> None:
    """Equal batches have equal fingerprints, others not; one micro-batch more makes another fingerprint."""
    other = IDS.clone()
    other[0, 0] = 99
    assert fingerprint(IDS) == fingerprint(IDS.clone()) != fingerprint(other)
    assert fingerprint(IDS, fingerprint(IDS) or 0) != fingerprint(IDS)


@pytest.mark.parametrize(
    "tensor", [torch.zeros(2, 2, dtype=torch.bfloat16), torch.tensor(1.0), torch.zeros(0, 3), IMAGES.to_sparse()]
)
def test_no_fingerprint_without_a_view_in_numpy(tensor: torch.Tensor) -> None:
    """What cannot be read in place has none."""
    assert fingerprint(tensor) is None
