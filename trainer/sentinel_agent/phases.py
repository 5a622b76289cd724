"""Where a Lightning training goes over to another kind of work, whose time is another: hooks for the callback.

Lightning itself is not imported: the callback that inherits from this is Lightning's.
"""

from __future__ import annotations

from typing import Any

from sentinel.protocol.processes import TrainingPhase
from sentinel_agent.fail_open import Guard, guarded
from sentinel_agent.rank_agent import RankAgent


class PhaseHooks:
    """Tells the agent of evaluations, saves, the borders of epochs and the end."""

    guard: Guard
    agent: RankAgent
    _before_save: TrainingPhase | None = None

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - as Lightning calls it
        """An evaluation begins; the sanity check comes before the training, and is of its start."""
        if not trainer.sanity_checking:
            self.agent.enter("evaluate")

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """It is over."""
        if not trainer.sanity_checking:
            self.agent.enter("train")

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Loaders are set up anew for the next epoch, and that takes its time."""
        self.agent.enter("start_up")

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """What comes now is the script's."""
        self.agent.enter("done")

    @guarded
    def save_begins(self) -> None:
        """A checkpoint is being saved."""
        self._before_save = self.agent.phase
        self.agent.enter("checkpoint")

    @guarded
    def save_ended(self) -> None:
        """It is saved, and what went before goes on."""
        if self._before_save is not None:
            self.agent.enter(self._before_save)
