"""The agent in a Lightning training: hooks to the agent's calls, and nothing else. The only module with Lightning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

try:
    from lightning import __version__ as lightning_version
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:  # the same library, packed alone
    from pytorch_lightning import Callback, LightningModule, Trainer  # type: ignore[assignment]
    from pytorch_lightning import __version__ as lightning_version  # type: ignore[attr-defined]

from sentinel.protocol.observations import DataMode, Mode
from sentinel_agent import sidecar
from sentinel_agent.agent import Agent
from sentinel_agent.contents import non_finite
from sentinel_agent.fail_open import Guard, guarded
from sentinel_agent.gradient_norm import gradient_norm
from sentinel_agent.keeper import Contents
from sentinel_agent.settings import resolve
from sentinel_agent.start_lines import Start, end_line, say, start_lines
from sentinel_agent.trainer_facts import (
    PLAIN_STRATEGIES,
    attempt_facts,
    clips_by_norm,
    has_resumable_loaders,
    rollback_impossible,
    saving,
)
from sentinel_agent.trainer_restore import LightningLoop, is_a
from sentinel_agent.trainer_taps import Taps


class SentinelCallback(Callback):
    """Watches a training: ``Trainer(callbacks=[SentinelCallback()])`` is all there is to add.

    No option stops a training: what cannot be used is told and the default taken. An argument goes before the
    environment, the environment before the default.

    Args:
        run: the run's name; by default ``SENTINEL_RUN``, else one is made up and found again at a resume.
        url: the daemon's address; by default ``SENTINEL_URL``, else ``http://127.0.0.1:8321``.
        mode: ``observe`` (the default; also ``SENTINEL_MODE``) does nothing to the training, ``act`` lets the daemon
            order rollbacks, ``off`` does nothing at all.
        checkpoint_every: optimizer steps between checkpoints of the agent's own; none by default.
        data: what becomes of the data at a rollback: ``forward``, it goes on where it is.
        token_file: a file with the daemon's token; by default ``SENTINEL_TOKEN_FILE``.
        mistyped: anything else; it is told with the nearest right name.
    """

    def __init__(
        self,
        *,
        run: str | None = None,
        url: str | None = None,
        mode: Mode | None = None,
        checkpoint_every: int | None = None,
        data: DataMode | None = None,
        token_file: str | Path | None = None,
        **mistyped: object,
    ) -> None:
        self.guard = Guard(say)
        self.guard.off = True
        self._options = {
            "run": run,
            "url": url,
            "mode": mode,
            "checkpoint_every": checkpoint_every,
            "data": data,
            "token_file": token_file,
            **mistyped,
        }
        self._taps = Taps(self.guard)
        self._every: int | None = None
        self._computes_norm = False
        self._contents: Contents | None = None

    @guarded
    def record(self, name: str, value: float | torch.Tensor) -> None:
        """Adds a series of your own to the reports: this step's value. Up to 16 names; nothing waits for a tensor."""
        self.agent.clock.record(name, value)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.guard = Guard(say)
        self._set_up(trainer, stage)

    @guarded
    def _set_up(self, trainer: Any, stage: str) -> None:
        self.guard.off = True
        settings = resolve(self._options)
        if stage != "fit" or settings.mode == "off" or trainer.fast_dev_run or not trainer.is_global_zero:
            return
        for warning in settings.warnings:
            say(f"warning: {warning}")
        # Behind the other callbacks but those that save: a checkpoint of the agent's holds what they did in its step.
        others = [each for each in trainer.callbacks if each is not self]
        savers = [each for each in others if is_a(each, frozenset({"Checkpoint"}))]
        trainer.callbacks = [*(each for each in others if each not in savers), self, *savers]
        self.agent = Agent(
            settings,
            device=trainer.strategy.root_device,
            folder=Path(trainer.default_root_dir).absolute() / ".sentinel",
            guard=self.guard,
            say=say,
        )
        self._loop = LightningLoop(trainer)
        self._taps = Taps(self.guard)
        self.guard.off = False
        self.agent.start()

    @guarded
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        agent = self.agent
        agent.begin(attempt_facts(trainer, lightning_version))
        self._taps.on_fetch(trainer, agent.clock)
        if clips_by_norm(trainer):
            self._taps.on_clipping(trainer, agent.clock)
            norm = "from Lightning's clipping"
        else:
            self._computes_norm = pl_module.automatic_optimization and is_a(trainer.strategy, PLAIN_STRATEGIES)
            norm = "its own" if self._computes_norm else ""
        self._every = agent.settings.checkpoint_every
        if self._every and trainer.world_size > 1:  # a save is for all ranks together
            say("warning: checkpoint_every is ignored: there are several ranks")
            self._every = None
        self._save = self._taps.on_save(trainer, begins=self._forget_contents, ended=self._saved)
        for line in start_lines(self._start(trainer, norm)):
            say(line)

    @guarded
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # All that belongs to the step before is over here: validation, its checkpoint, its log lines, its schedulers.
        agent = self.agent
        if agent.commands and agent.clock.reading.batches == 0:
            agent.roll_back(self._loop)
        agent.clock.batch_began(batch)

    @guarded
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        self.agent.clock.backward_began()

    @guarded
    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.agent.clock.backward_ended()

    @guarded
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        reading = self.agent.clock.reading
        if reading.lr is None:
            lr = optimizer.param_groups[0]["lr"]
            reading.lr = lr.detach().clone() if isinstance(lr, torch.Tensor) else float(lr)
        if self._computes_norm:
            self._computes_norm = False  # for good, if it raises
            reading.grad_norm = gradient_norm(optimizer)
            self._computes_norm = True

    @guarded
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        agent = self.agent
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        agent.clock.batch_ended(loss if isinstance(loss, torch.Tensor) else None)
        before, step = agent.step, trainer.global_step
        if step <= before:
            return
        agent.step_ended(step)
        if self._every and step // self._every > before // self._every:
            agent.save_checkpoint(self._save_own)

    @guarded
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        trained = {name for name, _ in pl_module.named_parameters()}
        loaders = trainer.fit_loop._combined_loader
        states = loaders._state_dicts() if loaders is not None else None
        self._contents = Contents(non_finite(checkpoint, trained), sidecar.capture(states))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        is_asked = not isinstance(exception, Exception)  # Ctrl-C, or SIGTERM, which Lightning makes a SystemExit
        self._taps.remove()
        self._end("interrupted" if is_asked else "failed", f"{type(exception).__name__}: {exception}"[:1000])

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._taps.remove()
        self._end("finished", "")

    @guarded
    def _end(self, outcome: Literal["finished", "failed", "interrupted"], reason: str) -> None:
        agent = self.agent
        agent.end(outcome, reason)
        self.guard.off = True
        if agent.keeper is not None:
            say(end_line(agent.tally()))

    def _forget_contents(self) -> None:
        self._contents = None

    def _saved(self, path: Path) -> None:
        if self._contents is not None:  # Lightning asks no callback about a file of weights alone
            self.agent.checkpoint_saved(path, self._contents)

    def _save_own(self, path: Path) -> Contents:
        self._save(path, weights_only=False)
        assert self._contents is not None  # on_save_checkpoint came by
        return self._contents

    def _start(self, trainer: Trainer, norm: str) -> Start:
        agent = self.agent
        assert agent.keeper is not None
        store, sender = agent.keeper.store, agent.courier.sender
        return Start(
            run=agent.run,
            attempt=agent.attempt,
            mode=agent.settings.mode,
            step=agent.step,
            url=agent.settings.url,
            answers=sender is not None and sender.delivered_total > 0,
            problem=None if sender is None else sender.problem,
            spool="" if agent.spool is None or agent.spool.problem else str(agent.spool.folder),
            saving=saving(trainer),
            checkpoint_every=self._every,
            pins=str(store.folder),
            found=sum(each.state == "verified" and each.step <= agent.step for each in store.checkpoints),
            rollback_impossible=rollback_impossible(trainer),
            loaders_resumable=has_resumable_loaders(trainer),
            is_cuda=trainer.strategy.root_device.type == "cuda",
            norm=norm,
            gpu_problem=agent.gpu.problem,
        )
