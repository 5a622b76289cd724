# ruff: noqa: NPY002, TID251 - the global generators are what a script uses
from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch

from sentinel_agent.sidecar import capture, restore


def draw() -> tuple[float, ...]:
    """Something from each generator; two from those that keep half a pair of normal numbers."""
    return (float(torch.rand(())), random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.rand())


def test_generators_go_back(tmp_path: Path) -> None:
    """What is drawn after the restore is what was drawn after the capture, through a file of plain values."""
    draw()
    torch.save(capture(), tmp_path / "sidecar.pt")
    drawn = draw()
    draw()
    restore(torch.load(tmp_path / "sidecar.pt", weights_only=True))
    assert draw() == drawn


def test_capture_draws_nothing() -> None:
    """Looking at the generators leaves them as they are."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    drawn = draw()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    capture()
    assert draw() == drawn


def test_loaders_are_kept_where_they_are_plain(tmp_path: Path) -> None:
    """States of tensors and numbers are kept; with anything else in it the file could not be loaded safely."""
    plain = [{"position": 3, "order": torch.arange(3), "more": (None, "x", {"y": 1.5})}]
    torch.save(capture(plain), tmp_path / "sidecar.pt")
    assert torch.equal(torch.load(tmp_path / "sidecar.pt", weights_only=True)["loaders"][0]["order"], torch.arange(3))
    assert "loaders" not in capture([{"dataset": Path()}])
