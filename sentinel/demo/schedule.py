"""Which faults the demo injects, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STEPS: Final = 400
HEALTHY_STEPS: Final = 300
CHECKPOINT_EVERY: Final = 50


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as the trainer is asked for it: ``KIND@POSITION[:LENGTH]``, by the number of the batch drawn."""

    kind: str
    position: int
    length: int = 1

    @property
    def option(self) -> str:
        """Its spelling on the trainer's command line."""
        return f"{self.kind}@{self.position}" + (f":{self.length}" if self.length != 1 else "")


FAULTS: Final = (
    Fault("kill", 130),
    Fault("corrupt_data", 250, 16),
    Fault("learning_rate", 400, 30),
    Fault("flip_checkpoint", 560, 50),
    Fault("nan", 560),
    Fault("hang", 660),
)
"""The bit is flipped in the newest checkpoint that is 50 steps old, which is the one that the NaN's rollback would
take: the agent must notice, and the daemon must choose an older one."""
