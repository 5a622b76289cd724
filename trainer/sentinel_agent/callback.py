"""The agent in a Lightning training: hooks to the agent's calls, and nothing else. The only module with Lightning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
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
from sentinel_agent import sidecar, trainer_facts
from sentinel_agent.agent import Leader
from sentinel_agent.board import Board, board
from sentinel_agent.contents import non_finite
from sentinel_agent.exact_loop import ExactLoop
from sentinel_agent.fail_open import Guard, guarded
from sentinel_agent.follower import Follower
from sentinel_agent.gradient_norm import gradient_norm
from sentinel_agent.keeper import Contents
from sentinel_agent.peers import Peers, meet
from sentinel_agent.phases import PhaseHooks
from sentinel_agent.resume import resume
from sentinel_agent.settings import Settings, resolve
from sentinel_agent.standby import register_stacks
from sentinel_agent.start_lines import Start, end_line, opening_of, say, start_lines
from sentinel_agent.trainer_restore import is_a
from sentinel_agent.trainer_taps import Taps


class SentinelCallback(PhaseHooks, Callback):
    """Watches a training: ``Trainer(callbacks=[SentinelCallback()])`` is all there is to add.

    No option stops a training: what cannot be used is told and the default taken. An argument goes before the
    environment, the environment before the default.

    Args:
        run: the run's name; by default ``SENTINEL_RUN``, else one is made up and found again at a resume.
        url: the daemon's address; by default ``SENTINEL_URL``, else ``http://127.0.0.1:8321``.
        mode: ``observe`` (the default; also ``SENTINEL_MODE``) does nothing to the training, ``act`` lets the daemon
            order rollbacks, ``off`` does nothing at all.
        checkpoint_every: optimizer steps between checkpoints of the agent's own; none by default.
        data: what becomes of the data at a rollback: ``forward``, it goes on where it is; ``exact``, it goes back too
            and what is suspect is skipped. By default exact where the loaders allow it and the daemon's policy asks.
        token_file: a file with the daemon's token; by default ``SENTINEL_TOKEN_FILE``.
        spool: a folder for what no daemon takes; by default ``SENTINEL_SPOOL``, else beside the run's name.
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
        spool: str | Path | None = None,
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
            "spool": spool,
            **mistyped,
        }
        self._taps = Taps(self.guard)
        self._every: int | None = None
        self._notes_data = False
        self._impossible = ""
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
        if stage != "fit" or settings.mode == "off" or trainer.fast_dev_run:
            return
        self._loop = ExactLoop(trainer)
        self._taps = Taps(self.guard)
        self._taps.on_resume(trainer, self._loop.cursor.set_epoch)
        register_stacks(trainer.global_rank)
        resume(trainer, self._taps, self._loop, run=settings.run, say=say)
        if settings.mode == "act":
            self._taps.on_run(trainer)
        link = self._meet(trainer, settings)
        if not trainer.is_global_zero and link is None:
            return
        # Behind the other callbacks but those that save: a checkpoint of the agent's holds what they did in its step.
        others = [each for each in trainer.callbacks if each is not self]
        savers = [each for each in others if is_a(each, frozenset({"Checkpoint"}))]
        trainer.callbacks = [*(each for each in others if each not in savers), self, *savers]
        device = trainer.strategy.root_device
        folder = Path(trainer.default_root_dir).absolute() / ".sentinel"
        if not trainer.is_global_zero:
            own = Follower(trainer.global_rank, settings, device=device, folder=folder, guard=self.guard, say=say)
            self.agent: Leader | Follower = own
        else:
            for warning in settings.warnings:
                say(f"warning: {warning}")
            self.agent = Leader(settings, device=device, folder=folder, guard=self.guard, say=say)
        if link is not None:
            self.agent.meet(link, self._loop)
        self._settings = settings
        self.guard.off = False
        self.agent.start()

    def _meet(self, trainer: Any, settings: Settings) -> Peers | Board | None:
        if trainer.world_size == 1:
            return None
        try:
            return meet(trainer.global_rank, trainer.world_size, self.guard) if settings.mode == "act" else board()
        except RuntimeError as error:
            say(f"warning: rank {trainer.global_rank} does not find the others, no rollback: {error}")
            return None

    @guarded
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        agent = self.agent
        self._loop.begin("the user chose data='forward'" if self._settings.data == "forward" else "")
        if self._settings.mode == "act":
            self._taps.on_iterator(trainer, self._loop.cursor.watch)
            self._notes_data = not self._loop.exact_impossible
        self._taps.on_fetch(trainer, agent.clock, self._loop.fetch_begins)
        if isinstance(agent, Follower):
            agent.step, agent.impossible = trainer.global_step, trainer_facts.rollback_impossible(trainer)
            if agent.peers is None:
                return
        agent.phase = "start_up"
        no_saves = trainer_facts.own_saves_impossible(trainer, acts=agent.peers is not None)
        self._every = None if no_saves else self._settings.checkpoint_every
        self._save = self._taps.on_save(trainer, begins=self._forget_contents, ended=self._saved)
        if isinstance(agent, Follower):
            return
        self._impossible = self._why_no_rollback(trainer, agent)
        facts = trainer_facts.attempt_facts(
            trainer,
            lightning_version,
            rollback_impossible=self._impossible,
            exact_impossible=self._loop.exact_impossible,
        )
        agent.begin(facts)
        if trainer_facts.clips_by_norm(trainer):
            self._taps.on_clipping(trainer, agent.clock)
            norm = "from Lightning's clipping"
        else:
            self._computes_norm = pl_module.automatic_optimization and is_a(
                trainer.strategy, trainer_facts.PLAIN_STRATEGIES
            )
            norm = "its own" if self._computes_norm else ""
        if no_saves and self._settings.checkpoint_every:
            say(f"warning: checkpoint_every is ignored: {no_saves}")
        for line in start_lines(self._start(trainer, agent, norm)):
            say(line)

    @guarded
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # All that belongs to the step before is over here: validation, its checkpoint, its log lines, its schedulers.
        agent = self.agent
        clock = agent.clock
        clock.batch_began(batch)
        if clock.reading.batches > 1:
            return
        if self._notes_data:
            if (late := self._loop.take_late()) is not None:
                agent.amend(late)
            self._loop.cursor.note(agent.step, clock.reading.fingerprint)
        if agent.commands and agent.roll_back(self._loop):
            clock.batch_began(batch)
            if self._notes_data:
                self._loop.cursor.note(agent.step, clock.reading.fingerprint)

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
        if isinstance(self.agent, Follower) and self.agent.peers is None:
            return
        trained = {name for name, _ in pl_module.named_parameters()}
        loaders = trainer.fit_loop._combined_loader
        states = loaders._state_dicts() if loaders is not None else None
        kept = sidecar.capture(states)
        kept["at_save"] = self._loop.facts()
        if self._notes_data:
            self._loop.saved()
        self._contents = Contents(non_finite(checkpoint, trained), kept)

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
        if isinstance(agent, Leader) and agent.keeper is not None:
            say(end_line(agent.tally()))

    def _forget_contents(self) -> None:
        self._contents = None
        self.save_begins()

    def _saved(self, path: Path) -> None:
        if self._contents is not None:  # Lightning asks no callback about a file of weights alone
            self.agent.checkpoint_saved(path, self._contents)
        self.save_ended()

    def _save_own(self, path: Path) -> Contents:
        # As trainer.save_checkpoint does, without its barrier: a rank whose agent has turned itself off hangs nobody.
        trainer = self._loop.trainer
        trainer.strategy.save_checkpoint(trainer._checkpoint_connector.dump_checkpoint(weights_only=False), path)
        assert self._contents is not None  # on_save_checkpoint came by
        return self._contents

    def _why_no_rollback(self, trainer: Any, agent: Leader) -> str:
        if trainer.world_size > 1 and self._settings.mode == "act":
            if agent.peers is None:
                return "the ranks did not find each other"
            if absent := agent.peers.absent():
                return f"rank {absent[0]} has no agent that acts"
        return trainer_facts.rollback_impossible(trainer)

    def _start(self, trainer: Trainer, agent: Leader, norm: str) -> Start:
        assert agent.keeper is not None
        store = agent.keeper.store
        return Start(
            **asdict(opening_of(agent)),
            saving=trainer_facts.saving(trainer),
            checkpoint_every=self._every,
            pins=str(store.folder),
            found=sum(each.state == "verified" and each.step <= agent.step for each in store.checkpoints),
            rollback_impossible=self._impossible,
            exact_impossible=self._loop.exact_impossible,
            is_cuda=trainer.strategy.root_device.type == "cuda",
            norm=norm,
            gpu_problem=agent.gpu.problem,
        )
