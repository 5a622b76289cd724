from __future__ import annotations

import pytest
import torch

from sentinel_agent.pinned_ring import ROWS, PinnedRing

pytestmark = pytest.mark.gpu


def test_values_arrive(cuda: torch.device) -> None:
    """Scalars of any precision come to the host in their order, through each row many times."""
    ring = PinnedRing(cuda)
    for turn in range(3 * ROWS):
        scalars = [torch.tensor(value, device=cuda) for value in (float(turn), 0.5)]
        ticket = ring.put([*scalars, torch.tensor(2.0, dtype=torch.bfloat16, device=cuda)])
        torch.cuda.synchronize()
        assert ticket.values() == [float(turn), 0.5, 2.0]


def test_full_ring_loses_values_and_waits_for_nobody(cuda: torch.device) -> None:
    """When nobody reads, the oldest rows stay and the newest values are unknown."""
    ring = PinnedRing(cuda)
    tickets = [ring.put([torch.tensor(float(turn), device=cuda)]) for turn in range(ROWS + 1)]
    torch.cuda.synchronize()
    assert tickets[0].values() == [0.0]
    assert tickets[ROWS].values() == [None]
