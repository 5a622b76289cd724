"""Where a Lightning trainer's training data stands: noted step by step, set back, and made to skip what is suspect.

A batch is named by its number since the run began, dropped ones counted: ``batch_progress.total.ready`` of Lightning,
which its checkpoints hold. A window of steps becomes a window of batches through the notes, so that batches dropped
once stay dropped when a later rollback passes them again. Lightning itself is not imported: the trainer is at hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sentinel_agent.trainer_restore import is_a

NOTES_KEPT: Final = 100_000
"""Steps whose batches are remembered: 8 MB. A window older than that is refused."""
_STEADY: Final = frozenset({"SequentialSampler", "DistributedSampler", "_InfiniteConstantSampler"})
"""Samplers whose order follows from their epoch alone; torchdata's keep a state instead."""


@dataclass(frozen=True, slots=True)
class Note:
    """One step of the live branch."""

    step: int
    batches: int
    """Drawn by its end, since the run began."""
    next_batch: int | None
    """The fingerprint of the batch that came after it."""


class DataCursor:
    """The data of one training."""

    def __init__(self, trainer: Any) -> None:
        self._loop = trainer.fit_loop
        self._notes: deque[Note] = deque(maxlen=NOTES_KEPT)
        self._dropped: list[tuple[int, int]] = []

    @property
    def batches(self) -> int:
        """The number of the newest batch that the loop has drawn."""
        return int(self._loop.epoch_loop.batch_progress.total.ready)

    def note(self, step: int, fingerprint: int | None) -> None:
        """The first batch of a step was drawn; ``step`` are the steps made before it."""
        while self._notes and self._notes[-1].step >= step:
            self._notes.pop()
        self._notes.append(Note(step, self.batches - 1, fingerprint))

    def expected(self, step: int) -> int | None:
        """The fingerprint of the batch that followed a step, if it is known and not to be dropped."""
        note = self._find(step)
        return None if note is None or self.drops(note.batches + 1) else note.next_batch

    def window(self, first_step: int, last_step: int) -> tuple[int, int] | None:
        """The numbers of the first and last batch of these steps; None if they are not remembered.

        The last step may be the newest one.
        """
        before, after = self._find(first_step - 1), self._find(last_step)
        return None if before is None or after is None else (before.batches + 1, after.batches)

    def drop(self, first: int, last: int) -> None:
        """These batches are drawn and thrown away from now on, whenever the loop comes by."""
        self._dropped.append((first, last))

    def drops(self, batch: int) -> bool:
        """Whether a batch is to be thrown away."""
        return any(first <= batch <= last for first, last in self._dropped)

    def set_back(self, states: list[dict[str, Any]]) -> None:
        """Sets the loaders back to where they were in the middle of an epoch and makes new iterators."""
        self._loop._combined_loader._load_state_dicts(states)
        self.set_epoch(self._loop.epoch_progress.current.processed)
        iter(self._loop._data_fetcher)

    def set_epoch(self, epoch: int) -> None:
        """Tells the samplers the epoch before they are iterated.

        Lightning 2.6 makes the iterators first when a training is resumed, so that the samplers order epoch 0.
        """
        for loader in self._loop._combined_loader.flattened:
            for sampler in (getattr(loader, "sampler", None), _inner(loader)):
                if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                    set_epoch(epoch)

    def watch(self, fetcher: Any) -> None:
        """An epoch's iterator was made: has it skip what is to be dropped, if anything is."""
        if self._dropped:
            fetcher.iterator = _Skipping(fetcher, self._loop.epoch_loop.batch_progress, self)

    def _find(self, step: int) -> Note | None:
        if not self._notes or not 0 <= (place := step - self._notes[0].step) < len(self._notes):
            return None
        return self._notes[place] if self._notes[place].step == step else None


class _Skipping(Iterator[Any]):
    """An epoch's batches without the dropped ones, which are counted all the same."""

    def __init__(self, fetcher: Any, progress: Any, cursor: DataCursor) -> None:
        self._batches = fetcher.iterator
        self._fetcher = fetcher
        self._progress = progress
        self._cursor = cursor

    def __next__(self) -> Any:
        while self._cursor.drops(self._progress.total.ready + 1):
            next(self._batches)
            self._fetcher.fetched += 1
            for count in (self._progress.total, self._progress.current):
                for name in ("ready", "started", "processed", "completed"):
                    setattr(count, name, getattr(count, name) + 1)
        return next(self._batches)


def exact_impossible(trainer: Any) -> str:
    """Why the trainer's data cannot be set back, and what to change; empty if it can. Its loaders are set up."""
    loop = trainer.fit_loop
    if loop._combined_loader is None or loop._data_fetcher is None:
        return "the training has no loader yet"
    if trainer.reload_dataloaders_every_n_epochs:
        return "the loaders are made anew in some epochs: do without reload_dataloaders_every_n_epochs"
    if is_a(loop._data_fetcher, frozenset({"_DataLoaderIterDataFetcher"})):
        return "training_step draws its batches itself: let it take a batch"
    if loop._data_fetcher.length is None:
        return (
            "the loader has no length, so Lightning draws a batch ahead of the saved state: give its dataset a __len__"
        )
    return next(filter(None, map(_unsteady, loop._combined_loader.flattened)), "")


def _unsteady(loader: Any) -> str:
    if not hasattr(loader, "state_dict") or not hasattr(loader, "load_state_dict"):
        return f"a plain {type(loader).__name__} cannot be set back: use torchdata's StatefulDataLoader"
    for sampler in (getattr(loader, "sampler", None), _inner(loader)):
        kind = type(sampler)
        if is_a(sampler, frozenset({"DistributedSamplerWrapper"})):
            return (
                "the sampler that Lightning puts in place loses its position: give the loader torchdata's "
                "StatefulDistributedSampler and the trainer use_distributed_sampler=False"
            )
        is_known = sampler is None or hasattr(sampler, "state_dict") or kind.__module__.startswith("torchdata.")
        if not is_known and not is_a(sampler, _STEADY):
            return f"{kind.__name__} keeps no state: give it state_dict and load_state_dict, or use torchdata's"
    return ""


def _inner(loader: Any) -> Any:
    return getattr(getattr(loader, "batch_sampler", None), "sampler", None)


def loader_states(sidecar: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The loaders' states in a sidecar; empty where it has none."""
    states: list[dict[str, Any]] = [] if sidecar is None else sidecar.get("loaders", [])
    return states
