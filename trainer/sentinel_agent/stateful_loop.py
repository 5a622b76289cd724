"""A loop of the user's own, known by its stateful objects: saved to a file, and set back in place.

The data goes on where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from sentinel_agent import sidecar
from sentinel_agent.contents import non_finite
from sentinel_agent.exact_loop import checksum
from sentinel_agent.keeper import Contents
from sentinel_agent.learning_rates import scale_learning_rates
from sentinel_agent.misfit import misfit
from sentinel_agent.rollback import TrainingLoop


class StatefulLoop(TrainingLoop):
    """One loop, as a ``TrainingLoop``.

    Args:
        model: its weights.
        optimizers: what trains them.
        also: the rest of its state: schedulers, a gradient scaler, averages of the weights.
    """

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], also: Sequence[Any]
    ) -> None:
        self.step = 0
        self._model = model
        self._optimizers = optimizers
        self._also = also

    def save(self, path: Path) -> Contents:
        """Writes a checkpoint of the state after step ``step``.

        Raises:
            OSError: it cannot be written.
        """
        checkpoint = {
            "state_dict": self._model.state_dict(),
            "optimizer_states": [each.state_dict() for each in self._optimizers],
            "also": [each.state_dict() for each in self._also],
            "step": self.step,
        }
        torch.save(checkpoint, path)
        trained = {name for name, _ in self._model.named_parameters()}
        return Contents(non_finite(checkpoint, trained), {**sidecar.capture(), "at_save": self.facts()})

    def load(self, path: Path) -> Mapping[str, Any]:
        """Reads a checkpoint into host memory. Its digest has proven that this run wrote it: it may hold any object."""
        contents: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
        return contents

    def misfit(self, checkpoint: Mapping[str, Any]) -> str:
        """Why the checkpoint cannot be restored; empty if it can."""
        if len(checkpoint["also"]) != len(self._also):
            return "there are more or fewer objects besides model and optimizers"
        return misfit(checkpoint, self._model, self._optimizers)

    def restore(self, checkpoint: Mapping[str, Any], *, step: int, lr_scale: float) -> None:
        """Sets all objects back and the step to ``step``; learning rates are multiplied."""
        self._model.load_state_dict(checkpoint["state_dict"])
        for optimizer, state in zip(self._optimizers, checkpoint["optimizer_states"], strict=True):
            optimizer.load_state_dict(state)
            optimizer.zero_grad(set_to_none=False)  # the script may still look at them
        for each, state in zip(self._also, checkpoint["also"], strict=True):
            each.load_state_dict(state)
        if lr_scale != 1.0:
            scale_learning_rates(self._optimizers, self._also, lr_scale)
        self.step = step

    def facts(self) -> Mapping[str, Any]:
        """What is recorded at a save and compared after a rollback."""
        rates = [float(group["lr"]) for each in self._optimizers for group in each.param_groups]
        return {"step": self.step, "lr": rates, "weights": checksum(self._model)}
