"""Places in a Lightning trainer where no hook passes by: the loader's fetch, the norm of its clipping, each save.

A tap calls what it stands before, once and with the same arguments; only what it does besides is guarded. All are taken
out again when the training ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sentinel_agent.exact_loop import Rewind
from sentinel_agent.fail_open import Guard
from sentinel_agent.readings import StepClock


class Taps:
    """The taps of one training."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._placed: list[tuple[object, str]] = []

    def remove(self) -> None:
        """Leaves every object as it was."""
        for owner, name in self._placed:
            vars(owner).pop(name, None)
        self._placed.clear()

    def on_fetch(self, trainer: Any, clock: StepClock, begins: Callable[[], None]) -> None:
        """Stamps the time in which the loop waits for its loader; ``begins`` is called before."""
        epoch_loop = trainer.fit_loop.epoch_loop
        before, after = epoch_loop._on_before_fetch, epoch_loop._on_after_fetch

        def on_before_fetch() -> None:
            begins()
            clock.fetch_began()
            before()

        def on_after_fetch() -> None:
            after()
            clock.fetch_ended()

        self._place(epoch_loop, "_on_before_fetch", on_before_fetch)
        self._place(epoch_loop, "_on_after_fetch", on_after_fetch)

    def on_clipping(self, trainer: Any, clock: StepClock) -> None:
        """Keeps the norm that clipping computes anyway and Lightning throws away.

        Only for a plugin whose ``clip_grad_by_norm`` is Lightning's own, which does just this.
        """
        plugin = trainer.precision_plugin

        def clip_grad_by_norm(optimizer: Any, clip_val: float) -> None:
            clock.reading.grad_norm = torch.nn.utils.clip_grad_norm_(plugin.main_params(optimizer), clip_val)

        self._place(plugin, "clip_grad_by_norm", clip_grad_by_norm)

    def on_save(
        self, trainer: Any, *, begins: Callable[[], None], ended: Callable[[Path], None]
    ) -> Callable[..., None]:
        """Has ``begins`` and ``ended`` called around each save; returns the trainer's own method."""
        save: Callable[..., None] = trainer.save_checkpoint

        def save_checkpoint(filepath: Any, *args: Any, **kwargs: Any) -> None:
            begins()
            save(filepath, *args, **kwargs)
            if not self._guard.off:
                with self._guard.watching("save_checkpoint"):
                    ended(Path(filepath))

        self._place(trainer, "save_checkpoint", save_checkpoint)
        return save

    def on_run(self, trainer: Any) -> None:
        """Has the fit loop run again whenever it was left to be set back."""
        run: Callable[[], None] = trainer.fit_loop.run

        def run_until_through() -> None:
            rewind: Rewind | None = None
            while True:
                try:
                    if rewind is not None:
                        rewind.carry_out()
                    run()
                except Rewind as again:
                    rewind = again
                else:
                    return

        self._place(trainer.fit_loop, "run", run_until_through)

    def on_restore(self, trainer: Any, path: str) -> None:
        """Has the trainer resume from a file of ours, known to be whole, instead of what its script named."""
        connector = trainer._checkpoint_connector
        resume_start: Callable[..., None] = connector.resume_start

        def start(checkpoint_path: Any = None, weights_only: bool | None = None) -> None:  # noqa: ARG001, FBT001 - as Lightning's
            resume_start(path, weights_only=False)

        self._place(connector, "resume_start", start)

    def on_iterator(self, trainer: Any, made: Callable[[Any], None]) -> None:
        """Has ``made`` called with the data fetcher at the start of each epoch, once its iterator is there."""
        epoch_loop = trainer.fit_loop.epoch_loop
        on_run_start = epoch_loop.on_run_start

        def start_run(data_fetcher: Any) -> None:
            on_run_start(data_fetcher)
            made(data_fetcher)

        self._place(epoch_loop, "on_run_start", start_run)

    def on_resume(self, trainer: Any, resumed: Callable[[int], None]) -> None:
        """Has ``resumed`` called with the epoch before the loaders of a resumed training are iterated."""
        loop = trainer.fit_loop
        load_states = loop._load_combined_loader_states

        def load_combined_loader_states() -> None:
            load_states()
            if loop.is_resuming:
                with self._guard.watching("the loaders' epoch"):
                    resumed(loop.epoch_progress.current.processed)

        self._place(loop, "_load_combined_loader_states", load_combined_loader_states)

    def _place(self, owner: object, name: str, tap: Callable[..., None]) -> None:
        if name not in vars(owner):  # somebody else's replacement stays
            self._placed.append((owner, name))
            setattr(owner, name, tap)
