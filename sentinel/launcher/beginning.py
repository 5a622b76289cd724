"""From where a training is to be started."""

from __future__ import annotations

from dataclasses import dataclass

from sentinel.protocol.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Beginning:
    """From where the training is to be started."""

    checkpoint: CheckpointId | None = None
    step: int = 0

    def __str__(self) -> str:
        """In words."""
        if self.checkpoint is None:
            return "as its script begins by itself"
        return f"from checkpoint {self.checkpoint} of step {self.step}"
