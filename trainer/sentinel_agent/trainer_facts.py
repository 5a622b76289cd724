"""What a Lightning trainer tells of itself when its training starts. Lightning itself is not imported."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Final

import torch

from sentinel_agent.attempt import Attempt
from sentinel_agent.trainer_restore import is_a

PLAIN_STRATEGIES: Final = frozenset({"SingleDeviceStrategy", "DDPStrategy"})
"""Strategies whose whole state is in the trainer's checkpoint file."""
_NEEDED: Final = ("restore_model", "restore_precision_plugin_state", "restore_optimizers_and_schedulers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """How the user's script saves checkpoints."""

    every: tuple[str, ...]
    """When, in words, one for each callback that saves whole checkpoints."""
    waits_for_epoch: bool
    """Whether nothing is saved before the first epoch ends."""
    weights_only: bool
    """Whether there are callbacks, and all save the weights alone."""
    epoch_steps: int | None
    """Optimizer steps in an epoch, where the loader has a length."""


def attempt_facts(trainer: Any, version: str, *, rollback_impossible: str, exact_impossible: str) -> Attempt:
    """The facts that the daemon is told.

    Args:
        trainer: at the start of its training.
        version: Lightning's.
        rollback_impossible: why it cannot be set back; empty if it can.
        exact_impossible: why its data cannot be set back with it; empty if it can.
    """
    return Attempt(
        step=trainer.global_step,
        is_resumed=trainer.global_step > 0 or trainer.ckpt_path is not None,
        max_steps=_max_steps(trainer),
        world_size=trainer.world_size,
        precision=str(trainer.precision),
        accumulate=trainer.accumulate_grad_batches,
        rollback_impossible=rollback_impossible,
        exact_impossible=exact_impossible,
        versions={"python": platform.python_version(), "torch": torch.__version__, "lightning": version},
    )


def rollback_impossible(trainer: Any) -> str:
    """Why this trainer cannot be rolled back in place, in words; empty if it can."""
    if not trainer.lightning_module.automatic_optimization:
        return "the module optimizes by hand, so only it knows where a step begins"
    if not is_a(trainer.strategy, PLAIN_STRATEGIES):
        return f"{type(trainer.strategy).__name__} keeps state outside the checkpoint's file"
    for callback in trainer.callbacks:
        if is_a(callback, frozenset({"StochasticWeightAveraging"})):
            return "StochasticWeightAveraging restores its averages at the start of a training only"
    missing = [name for name in _NEEDED if not hasattr(trainer._checkpoint_connector, name)]
    return f"this version of Lightning has no {missing[0]}" if missing else ""


def own_saves_impossible(trainer: Any, *, acts: bool) -> str:
    """Why the agents may save no checkpoints of their own, in words; empty if they may."""
    if trainer.world_size == 1:
        return ""
    if not acts:
        return "there are several ranks and the agent does not act"
    if not is_a(
        trainer.strategy, PLAIN_STRATEGIES
    ):  # one rank's agent may have turned itself off: the others would wait
        return f"with {type(trainer.strategy).__name__} every rank must take part in a save"
    return ""


def clips_by_norm(trainer: Any) -> bool:
    """Whether Lightning computes the gradient norm itself, in the precision plugin's own method."""
    algorithm = trainer.gradient_clip_algorithm
    return bool(
        trainer.gradient_clip_val
        and (algorithm is None or algorithm == "norm")
        and _is_lightnings(trainer.lightning_module.configure_gradient_clipping)
        and _is_lightnings(trainer.precision_plugin.clip_grad_by_norm)
    )


def saving(trainer: Any) -> Saving:
    """When the trainer's callbacks save, as far as it can be known."""
    callbacks = [each for each in trainer.checkpoint_callbacks if getattr(each, "save_top_k", 1) or each.save_last]
    whole = [each for each in callbacks if not getattr(each, "save_weights_only", False)]
    epoch_batches = trainer.num_training_batches
    return Saving(
        every=tuple(_when(each) for each in whole),
        waits_for_epoch=not any(_saves_within_epoch(each) for each in whole),
        weights_only=bool(callbacks) and not whole,
        epoch_steps=ceil(epoch_batches / trainer.accumulate_grad_batches) if isfinite(epoch_batches) else None,
    )


def _saves_within_epoch(callback: Any) -> bool:
    return bool(getattr(callback, "_every_n_train_steps", 0) or getattr(callback, "_train_time_interval", None))


def _when(callback: Any) -> str:
    name = type(callback).__name__
    if steps := getattr(callback, "_every_n_train_steps", 0):
        return f"{name} saves every {steps} steps"
    if interval := getattr(callback, "_train_time_interval", None):
        return f"{name} saves every {interval}"
    epochs = getattr(callback, "_every_n_epochs", 1)
    return f"{name} saves at the end of {'each epoch' if epochs <= 1 else f'every {epochs} epochs'}"


def _max_steps(trainer: Any) -> int | None:
    if trainer.max_steps >= 0:
        return int(trainer.max_steps)
    epochs, batches = trainer.max_epochs, trainer.num_training_batches
    if epochs is None or epochs < 0 or not isfinite(batches):
        return None
    return int(epochs * ceil(batches / trainer.accumulate_grad_batches))


def _is_lightnings(method: Any) -> bool:
    return str(method.__module__).startswith(("lightning.", "pytorch_lightning."))
