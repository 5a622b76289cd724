"""A Lightning trainer set back in place, between two optimizer steps, while its data goes on.

What belongs to the model's state goes back: weights, precision plugin, optimizers, schedulers, callbacks, step. What
belongs to the data or to the clock stays: epoch and batch counters, loaders, datamodule, timers; so do the callbacks
that save checkpoints, whose files are all still there. Lightning itself is not imported: the trainer is at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import torch

from sentinel_agent.learning_rates import scale_learning_rates
from sentinel_agent.misfit import misfit
from sentinel_agent.rollback import TrainingLoop

STAYING: Final = frozenset({"Checkpoint", "Timer"})
"""Callbacks, by the name of their class or a base, that a rollback leaves alone."""


class LightningLoop(TrainingLoop):
    """One trainer, as a ``TrainingLoop``."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def load(self, path: Path) -> Mapping[str, Any]:
        """Reads a checkpoint into host memory. Its digest has proven that this run wrote it: it may hold any object."""
        contents: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
        return contents

    def misfit(self, checkpoint: Mapping[str, Any]) -> str:
        """Why the checkpoint cannot be restored into this trainer; empty if it can."""
        trainer = self.trainer
        module = trainer.lightning_module
        for key in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "loops"):
            if key not in checkpoint:
                return f"it has no {key}"
        if problem := misfit(checkpoint, module, trainer.optimizers, is_strict=module.strict_loading):
            return problem
        if len(checkpoint["lr_schedulers"]) != len(trainer.lr_scheduler_configs):
            return "there are more or fewer learning rate schedulers"
        return ""

    def restore(self, checkpoint: Mapping[str, Any], *, step: int, lr_scale: float) -> None:
        """Sets the trainer back to the checkpoint's state and to ``step``; learning rates are multiplied."""
        trainer = self.trainer
        connector = trainer._checkpoint_connector
        connector._loaded_checkpoint = checkpoint
        try:
            connector.restore_model()
            self._restore_callbacks(checkpoint)
            connector.restore_precision_plugin_state()
            connector.restore_optimizers_and_schedulers()
        finally:
            connector._loaded_checkpoint = {}
        self._restore_counts(step)
        for optimizer in trainer.optimizers:
            optimizer.zero_grad()
        if lr_scale != 1.0:
            schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
            scale_learning_rates(trainer.optimizers, schedulers, lr_scale)

    def _restore_callbacks(self, checkpoint: Mapping[str, Any]) -> None:
        trainer = self.trainer
        states = checkpoint.get("callbacks") or {}
        for callback in trainer.callbacks:
            if is_a(callback, STAYING):
                # A step that comes again is to be saved again.
                if hasattr(callback, "_last_global_step_saved"):
                    callback._last_global_step_saved = 0
                continue
            callback.on_load_checkpoint(trainer, trainer.lightning_module, checkpoint)
            if state := states.get(callback.state_key):
                callback.load_state_dict(deepcopy(state))

    def _restore_counts(self, step: int) -> None:
        """Sets the step and the loggers' count back. Means over the epoch begin anew, without what is undone."""
        epoch_loop = self.trainer.fit_loop.epoch_loop
        given_up = self.trainer.global_step - step
        total = epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
        total.ready = total.completed = step
        epoch_loop._batches_that_stepped -= given_up
        epoch_loop._results.reset()


def is_a(thing: object, names: frozenset[str]) -> bool:
    """Whether the thing's class or one of its bases has one of ``names``, in whichever package Lightning is."""
    return any(each.__name__ in names for each in type(thing).__mro__)
