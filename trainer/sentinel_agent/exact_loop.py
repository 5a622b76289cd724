"""A Lightning trainer set back together with its data: what comes again is, bit for bit, what came the first time.

In the middle of an epoch neither the loop's iterator nor its restart logic can be changed from a hook. So the hook
raises ``Rewind`` through Lightning's loops up to ``fit_loop.run``, which is tapped: it restores and runs again, as
Lightning does when a training is resumed, with the same loaders and without a second ``on_train_start``. Lightning
itself is not imported: the trainer is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from sentinel.protocol.commands import RollBack
from sentinel_agent import sidecar
from sentinel_agent.data_cursor import DataCursor, exact_impossible, loader_states
from sentinel_agent.trainer_restore import LightningLoop


class Rewind(BaseException):
    """The loop is to be left, set back by ``carry_out`` and run again. No error: nobody but the tap may catch it."""

    def __init__(self, carry_out: Callable[[], None]) -> None:
        super().__init__()
        self.carry_out = carry_out


class ExactLoop(LightningLoop):
    """One trainer, as a ``TrainingLoop`` whose data can be set back too."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.cursor = DataCursor(trainer)
        self.exact_impossible = "the training has not begun"
        self._expected: int | None = None
        self._late: dict[str, Any] | None = None
        self._beside: Mapping[str, Any] | None = None

    def begin(self, refusal: str) -> None:
        """The loaders are set up; ``refusal`` is why their data is not to be set back even if it can."""
        self.exact_impossible = refusal or exact_impossible(self.trainer)

    def cannot_rewind(self, command: RollBack, beside: Mapping[str, Any] | None) -> str:
        """Why the data cannot be set back to this checkpoint; empty if it can."""
        if beside is None:
            return "its sidecar is gone, and with it the state of the random generators and the loaders"
        if len(loader_states(beside)) != len(self.trainer.fit_loop._combined_loader.flattened):
            return "its sidecar does not hold the state of every loader"
        if command.skip_to_step and self._window(command) is None:
            return f"it is not known which batches steps {command.skip_from_step} to {command.skip_to_step} took"
        return ""

    def is_between_epochs(self, checkpoint: Mapping[str, Any]) -> bool:
        """Whether the checkpoint was saved after the last batch of an epoch.

        Lightning 2.6 resumes there with the iterators of the epoch that is over, and so without a next epoch.
        """
        return bool(checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"])

    def restore(self, checkpoint: Mapping[str, Any], *, step: int, lr_scale: float) -> None:
        """Sets all but the data back; what is skipped now stays skipped, should a later rollback rewind over it."""
        skipped = self.cursor.window(step + 1, self.trainer.global_step)
        super().restore(checkpoint, step=step, lr_scale=lr_scale)
        if skipped is not None:
            self.cursor.drop(*skipped)

    def rewind(self, command: RollBack, checkpoint: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """Sets everything back; to be called with the loop left and about to be run again."""
        trainer = self.trainer
        loop = trainer.fit_loop
        window = self._window(command) if command.skip_to_step else None
        loop._data_fetcher.teardown()
        super().restore(checkpoint, step=command.step, lr_scale=command.lr_scale)
        loop.load_state_dict(checkpoint["loops"]["fit_loop"])
        trainer.lightning_module._current_fx_name = None
        if window is not None:
            self.cursor.drop(*window)
        self._expected = self.cursor.expected(command.step)
        self._beside = beside
        loop.setup_data = partial(self._set_up_data, beside)
        loop.on_run_start = self._start_run

    def resume_beside(self, beside: Mapping[str, Any] | None) -> None:
        """The training is resumed: Lightning leaves the random generators to us, as at a rewind."""
        self._beside = beside

    def facts(self) -> dict[str, Any]:
        """What is recorded at a save and compared after a rollback."""
        trainer = self.trainer
        return {
            "step": trainer.global_step,
            "lr": [float(group["lr"]) for each in trainer.optimizers for group in each.param_groups],
            "weights": checksum(trainer.lightning_module),
        }

    def saved(self) -> None:
        """A checkpoint was saved. What follows before the next step, a validation above all, is not run again."""
        self._late = {}

    def fetch_begins(self) -> None:
        """The loop is about to draw a batch, the first after a rewind if there was one."""
        if self._beside is not None:  # until here a validation or the making of iterators may have drawn from them
            sidecar.restore(self._beside.get("before_fetch", self._beside))
            self._beside = None
        if self._late is not None and "before_fetch" not in self._late:
            self._late["before_fetch"] = sidecar.capture()

    def take_late(self) -> dict[str, Any] | None:
        """Where the generators went between a save and the next step; None if there was no save."""
        late, self._late = self._late, None
        return late

    def is_other_batch(self, fingerprint: int | None) -> bool | None:
        """Whether the first batch after a rewind is another one than the first time; None if that is not known."""
        expected, self._expected = self._expected, None
        return None if expected is None or fingerprint is None else expected != fingerprint

    def _window(self, command: RollBack) -> tuple[int, int] | None:
        return self.cursor.window(max(command.skip_from_step, command.step + 1), command.skip_to_step)

    def _set_up_data(self, beside: Mapping[str, Any]) -> None:
        """Once, in place of the loop's own: the loaders are kept."""
        loop = self.trainer.fit_loop
        del loop.setup_data
        self.cursor.set_back(loader_states(beside))

    def _start_run(self) -> None:
        """Once, in place of the loop's own: ``on_train_start`` has been, and only what it does besides is done."""
        loop = self.trainer.fit_loop
        del loop.on_run_start
        if not loop._iteration_based_training():
            loop.epoch_progress.current.completed = loop.epoch_progress.current.processed


def checksum(module: Any) -> int:
    """A sum over the bits of all parameters, computed where they are: any change of one number changes it.

    Buffers are left out: under DDP each rank keeps its own until the next forward pass.
    """
    total = 0
    for place, parameter in enumerate(module.parameters()):
        bits = parameter.detach().contiguous().view(_AS_INTEGER[parameter.element_size()])
        total += (2 * place + 1) * int(bits.sum(dtype=torch.int64))
    return total % (1 << 63)


_AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
