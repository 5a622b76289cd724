from __future__ import annotations

import pytest
import torch

from sentinel_agent.pinned_ring import ROWS, PinnedRing

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a CUDA device")


def test_values_arrive() -> None:
    """Scalars of any precision come to the host in their order, through each row many times."""
    device = torch.device("cuda", 0)
    ring = PinnedRing(device)
    for turn in range(3 * ROWS):
        scalars = [torch.tensor(value, device=device) for value in (float(turn), 0.5)]
        ticket = ring.put([*scalars, torch.tensor(2.0, dtype=torch.bfloat16, device=device)])
        torch.cuda.synchronize()
        assert ticket.values() == [float(turn), 0.5, 2.0]


def test_full_ring_loses_values_and_waits_for_nobody() -> None:
    """When nobody reads, the oldest rows stay and the newest values are unknown."""
    device = torch.device("cuda", 0)
    ring = PinnedRing(device)
    tickets = [ring.put([torch.tensor(float(turn), device=device)]) for turn in range(ROWS + 1)]
    torch.cuda.synchronize()
    assert tickets[0].values() == [0.0]
    assert tickets[ROWS].values() == [None]
