"""A checkpoint as the daemon knows it, and what "good" means.

reported ──verify──▶ verified ──confirm──▶ known_good        confirm: taken before every open onset, and enough clean
    │                   │  ▲                   │             steps have followed
    │                   │  └─────clear─────┐   │             doubt: taken too near to, or after, the onset of a fault
    └───────doubt───────┴──────doubt──▶ suspect              clear: the fault passed by itself
any ──condemn──▶ bad         any ──delete──▶ deleted
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sentinel.protocol.ids import AttemptId, CheckpointId

CheckpointState = Literal["reported", "verified", "known_good", "suspect", "bad", "deleted"]
CheckpointEvent = Literal["verify", "confirm", "doubt", "clear", "condemn", "delete"]

TRANSITIONS: Mapping[tuple[CheckpointState, CheckpointEvent], CheckpointState] = {
    ("reported", "verify"): "verified",
    ("reported", "doubt"): "suspect",
    ("reported", "condemn"): "bad",
    ("reported", "delete"): "deleted",
    ("verified", "confirm"): "known_good",
    ("verified", "doubt"): "suspect",
    ("verified", "condemn"): "bad",
    ("verified", "delete"): "deleted",
    ("known_good", "doubt"): "suspect",
    ("known_good", "condemn"): "bad",
    ("known_good", "delete"): "deleted",
    ("suspect", "clear"): "verified",
    ("suspect", "condemn"): "bad",
    ("suspect", "delete"): "deleted",
    ("bad", "delete"): "deleted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Identity is (run, segment, step, digest): a file such as ``last.ckpt`` is overwritten, a checkpoint is not."""

    id: CheckpointId
    attempt: AttemptId
    step: int
    segment: int
    state: CheckpointState
    name: str = ""
    digest: str = ""
    size_bytes: int | None = None
    verified: bool = False
    """Whether its contents were checked: else a suspect can never be cleared."""
    abandoned: bool = False
    """Whether its branch is one that the run has left: it stays suspect then."""
    at_hand: bool = True
    """Whether the newest attempt has said that it has it: one that runs elsewhere may not."""
    reason: str = ""
    """Why it is in this state."""
