from __future__ import annotations

from types import SimpleNamespace

import pytest
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy, Strategy

from sentinel_agent.trainer_facts import own_saves_impossible


@pytest.mark.parametrize(
    ("strategy", "ranks", "acts", "why"),
    [
        (SingleDeviceStrategy(), 1, False, ""),
        (DDPStrategy(), 2, True, ""),
        (DDPStrategy(), 2, False, "does not act"),
        (FSDPStrategy(), 2, True, "with FSDPStrategy every rank must take part"),
    ],
)
def test_no_save_of_the_agents_own_needs_other_ranks(strategy: Strategy, ranks: int, acts: bool, why: str) -> None:  # noqa: FBT001
    """A collective within it would hang all when one rank's agent has turned itself off."""
    problem = own_saves_impossible(SimpleNamespace(world_size=ranks, strategy=strategy), acts=acts)
    assert problem == why if not why else why in problem
