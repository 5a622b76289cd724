"""Which checkpoints need no pin any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sentinel.domain.checkpoints import Checkpoint
from sentinel.protocol.ids import CheckpointId

KNOWN_GOOD_KEPT: Final = 2
"""The very last may turn out broken, so never one alone (S. Bekman, Machine Learning Engineering, on checkpoints)."""
CANDIDATES_KEPT: Final = 4
"""Newer ones that may still become known good."""


def releasable(checkpoints: Sequence[Checkpoint]) -> tuple[CheckpointId, ...]:
    """Ids whose files the agent may let go.

    Kept are the two newest known-good checkpoints, the newest candidates (suspects that may be cleared among them), and
    the oldest verified one: where checkpoints come fast, the newest alone would never live to be confirmed. What is bad
    or on an abandoned branch is not. What the live attempt has not announced is neither kept nor let go.

    Args:
        checkpoints: all of the run, newest first.
    """
    checkpoints = [each for each in checkpoints if each.at_hand]
    known_good = [each.id for each in checkpoints if each.state == "known_good"][:KNOWN_GOOD_KEPT]
    hopeful = [
        each.id
        for each in checkpoints
        if each.state in ("reported", "verified") or (each.state == "suspect" and each.verified and not each.abandoned)
    ][:CANDIDATES_KEPT]
    pilot = [each.id for each in checkpoints if each.state == "verified"][-1:]
    kept = {*known_good, *hopeful, *pilot}
    return tuple(each.id for each in checkpoints if each.state != "deleted" and each.id not in kept)
