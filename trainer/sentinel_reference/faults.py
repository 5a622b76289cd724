"""Faults injected by schedule, as they happen in the field, each noted with the moment it struck.

`KIND@STEP[:LENGTH]` strikes the data of the optimizer step that comes after STEP others *when nothing is ever rolled
back*: a fault belongs to a position in the data, not to the trainer's step. After a rollback that lets the data go on
it is past, while a replay of the same data meets the same corruption again.

`corrupt_data` is the one that does lasting harm: targets stay those of the step before the window, as in a buffer of
labels that is not refilled (an asynchronous copy nobody waited for, a label shard read at a stuck offset). Random
bytes, flipped bits or one block repeated give a far higher loss, but lie apart from real text: 20 steps after 8 such
ones 0.1 nat is left of it, clipping on. Wrong targets for real text undo what was learned: 1.0 nat is left after 20
steps, and 0.5 after 60 (laptop preset, step 250, measured).
"""

from __future__ import annotations

import difflib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn
from torch.utils.data import Dataset

from sentinel_reference.data import ENDLESS_SEQUENCES
from sentinel_reference.module import LanguageModeling

FLIPPED_BIT: Final = 0x10


class FaultError(ValueError):
    """A fault cannot be scheduled or injected; the message tells the remedy."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One scheduled fault."""

    kind: str
    step: int
    """Optimizer steps' worth of data drawn before it."""
    length: int

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.kind}@{self.step}:{self.length}"


class StaleTargets(Dataset[dict[str, Tensor]]):
    """Sound data in which the targets stand still for some steps.

    Args:
        sound: items by position, of which "targets" is replaced.
        fault: `step` is the first step with stale targets, `length` how many have them.
        step_sequences: sequences in one optimizer step.
    """

    def __init__(self, sound: Dataset[dict[str, Tensor]], fault: Fault, step_sequences: int) -> None:
        self._sound = sound
        self._step_sequences = step_sequences
        self._window = range(fault.step * step_sequences, (fault.step + fault.length) * step_sequences)

    def __len__(self) -> int:
        return ENDLESS_SEQUENCES

    def __getitem__(self, position: int) -> dict[str, Tensor]:
        item = self._sound[position]
        if position in self._window:
            stale = self._window.start - self._step_sequences + position % self._step_sequences
            item["targets"] = self._sound[stale]["targets"]
        return item


def _begin_window(fault: Fault, _trainer: Trainer, _module: LanguageModeling) -> dict[str, Any]:
    """Only tells: the data itself is corrupt, see StaleTargets."""
    return {"length_steps": fault.length}


def _poison(_fault: Fault, _trainer: Trainer, module: LanguageModeling) -> dict[str, Any]:
    """Makes one activation of one forward pass NaN; loss, gradients and weights follow by arithmetic."""

    def add_nan(
        _block: nn.Module,
        _inputs: Any,
        stream: Tensor,  # (B, T, C)
    ) -> Tensor:  # (B, T, C)
        hook.remove()
        poison = torch.zeros_like(stream)
        poison[0, 0, 0] = torch.nan
        return stream + poison

    layer = len(module.model.blocks) // 2
    hook = module.model.blocks[layer].register_forward_hook(add_nan)
    return {"layer": layer}


def _flip_bit(fault: Fault, trainer: Trainer, _module: LanguageModeling) -> dict[str, Any]:
    """Flips one bit in the middle of the newest checkpoint that is old enough, in place: hard links see it too."""
    folder = Path(trainer.checkpoint_callback.dirpath)
    old = [path for path in folder.glob("*.ckpt") if trainer.global_step - _step_of(path) >= fault.length]
    if not old:
        raise FaultError(
            f"{fault}: {folder} has no checkpoint that is {fault.length} steps old at step {trainer.global_step}: "
            "let it strike later, or pass a smaller --checkpoint-every"
        )
    newest = max(old, key=lambda path: path.stat().st_mtime_ns)
    middle = newest.stat().st_size // 2
    with newest.open("r+b") as file:
        file.seek(middle)
        byte = file.read(1)[0]
        file.seek(middle)
        file.write(bytes([byte ^ FLIPPED_BIT]))
    return {"file": str(newest), "byte": middle}


def _step_of(checkpoint: Path) -> int:
    found = re.search(r"step=(\d+)", checkpoint.name)
    if not found:
        raise FaultError(f"{checkpoint} does not tell its step: name checkpoints {{step}}, as train.py does")
    return int(found[1])


def _raise_learning_rate(fault: Fault, trainer: Trainer, _module: LanguageModeling) -> dict[str, Any]:
    """Multiplies the learning rate from here on, as a mistyped schedule does; a rollback brings the right one back."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            group["lr"] *= fault.length
    for config in trainer.lr_scheduler_configs:
        config.scheduler.base_lrs = [rate * fault.length for rate in config.scheduler.base_lrs]
    return {"factor": fault.length}


def _tell_nothing(_fault: Fault, _trainer: Trainer, _module: LanguageModeling) -> dict[str, Any]:
    return {}


def _die() -> None:
    """As by the kernel when memory is short: nobody is asked."""
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_a_lost_rank() -> None:
    """As in a collective whose other side is gone: the thread waits, the process lives."""
    threading.Event().wait()


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of fault does, and what its length means."""

    inject: Callable[[Fault, Trainer, LanguageModeling], dict[str, Any]]
    """Returns what to note beside kind and time."""
    length_is: str | None
    """None where there is nothing to be long."""
    default_length: int = 0
    end: Callable[[], None] | None = None
    """What it does once it is noted, where there is no coming back."""


KINDS: Final[Mapping[str, Kind]] = {
    "corrupt_data": Kind(_begin_window, "steps with stale targets", default_length=8),
    "nan": Kind(_poison, None),
    "learning_rate": Kind(_raise_learning_rate, "the factor", default_length=30),
    "kill": Kind(_tell_nothing, None, end=_die),
    "hang": Kind(_tell_nothing, None, end=_wait_for_a_lost_rank),
    "flip_checkpoint": Kind(_flip_bit, "steps since the checkpoint was written, at least"),
}


def parse_fault(text: str) -> Fault:
    """Read `KIND@STEP[:LENGTH]`.

    Raises:
        FaultError: the text is not of that form, or there is no such kind.
    """
    found = re.fullmatch(r"(?P<kind>[^@]+)@(?P<step>[1-9]\d*)(:(?P<length>[1-9]\d*))?", text)
    if not found:
        raise FaultError(f"{text!r} is not KIND@STEP[:LENGTH] with whole numbers from 1, as corrupt_data@250:8")
    name, length = found["kind"], found["length"]
    if name not in KINDS:
        nearest = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.0)[0]
        raise FaultError(f"there is no fault {name!r}: did you mean {nearest}? All kinds: {', '.join(KINDS)}")
    kind = KINDS[name]
    if length and kind.length_is is None:
        raise FaultError(f"{text!r}: {name} has no length; write {name}@{found['step']}")
    return Fault(name, int(found["step"]), int(length) if length else kind.default_length)


def corrupt(
    dataset: Dataset[dict[str, Tensor]], faults: Sequence[Fault], step_sequences: int
) -> Dataset[dict[str, Tensor]]:
    """Return the data with every scheduled corruption."""
    for fault in faults:
        if fault.kind == "corrupt_data":
            dataset = StaleTargets(dataset, fault, step_sequences)
    return dataset


class FaultInjector(Callback):
    """Strikes once for each fault, when the first sequence of its step is about to be trained on.

    Args:
        faults: the schedule.
        step_sequences: sequences in one optimizer step.
        log: gets a line of JSON a fault: `kind`; `step`, the trainer's number of the struck step, counted from 1;
            `data_step`, as scheduled; `at`, in Unix seconds; and what else there is to tell. None to keep no log.
    """

    def __init__(self, faults: Sequence[Fault], step_sequences: int, *, log: Path | None) -> None:
        struck = _noted(log)
        self._pending = [fault for fault in faults if (fault.kind, fault.step) not in struck]
        self._step_sequences = step_sequences
        self._log = log

    def on_train_batch_start(
        self,
        trainer: Trainer,
        module: LanguageModeling,
        batch: Mapping[str, Tensor],  # position (B,)
        *_: Any,
    ) -> None:
        position = int(batch["position"][0])
        for fault in [fault for fault in self._pending if fault.step * self._step_sequences == position]:
            self._pending.remove(fault)
            told = KINDS[fault.kind].inject(fault, trainer, module)
            struck = {"kind": fault.kind, "step": trainer.global_step + 1, "data_step": fault.step, "at": time.time()}
            if self._log:
                with self._log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(struck | told) + "\n")
            if (end := KINDS[fault.kind].end) is not None:
                end()


def _noted(log: Path | None) -> set[tuple[str, int]]:
    """What has struck already: an accident does not happen again because the process was started again."""
    if log is None or not log.exists():
        return set()
    notes = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return {(note["kind"], note["data_step"]) for note in notes}
