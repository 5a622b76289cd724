"""The agent in a training loop of the user's own: a context manager around it and one call a step."""

from __future__ import annotations

import os
import platform
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

import torch
import torch.distributed as dist

from sentinel.protocol.observations import Mode
from sentinel_agent.agent import Leader
from sentinel_agent.attempt import Attempt
from sentinel_agent.fail_open import Guard, guarded
from sentinel_agent.settings import Settings, resolve
from sentinel_agent.start_lines import end_line, loop_lines, opening_of, say
from sentinel_agent.stateful_loop import StatefulLoop

Batch = TypeVar("Batch")
Number = float | torch.Tensor
PLAIN_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
"""Anything else, a DTensor above all, may call a collective when it is read, which hangs where one rank calls it."""


class Options(TypedDict, total=False):
    """What an ``Agent`` takes besides the loop's own objects."""

    run: str | None
    url: str | None
    mode: Mode | None
    checkpoint_every: int | None
    token_file: str | Path | None


class Agent:
    """Watches a loop: ``with Agent(model, optimizer) as sentinel:`` around it, ``sentinel.step(loss=loss)`` a step.

    Nothing here stops a training, waits for a device or changes a number, except a rollback in mode ``act``: it happens
    within ``step``, which sets model, optimizers and what else is named back in place while the data goes on. Several
    processes are observed and not set back; the first one speaks for them.

    Args:
        model: what is trained.
        optimizer: what trains it; a sequence if there are several.
        also: what else has a state, with ``state_dict`` and ``load_state_dict``: schedulers, a gradient scaler.
        start_step: the optimizer steps made before, when a run goes on.
        max_steps: where the training will end, if that is known.
        folder: where ``.sentinel`` is put, with the run's name, its spool and its checkpoints.
        options: ``run``, ``url``, ``mode``, ``checkpoint_every`` (steps between checkpoints that the agent saves, the
            only ones that it can go back to) and ``token_file``, as the Lightning callback takes them.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        also: Sequence[Any] = (),
        start_step: int = 0,
        max_steps: int | None = None,
        folder: str | Path = ".",
        **options: Unpack[Options],
    ) -> None:
        self.newest_step = start_step
        """Optimizer steps made; goes back with a rollback."""
        self.guard = Guard(say)
        self.guard.off = True
        self._model = model
        self._optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self._also = also
        self._max_steps = max_steps
        self._folder = folder
        self._options = options
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._every: int | None = None
        self._is_entered = self._draws = self._in_batch = False
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        self.guard = Guard(say)
        self._is_entered = True
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._end(error)

    def step(self, *, loss: Number | None = None, grad_norm: Number | None = None, lr: Number | None = None) -> int:
        """To be called once after each optimizer step, before or after the scheduler's.

        Args:
            loss: of the step, the mean over its micro-batches; a tensor is not waited for.
            grad_norm: before clipping, as ``clip_grad_norm_`` returns it.
            lr: by default the first parameter group's at the optimizer's step.

        Returns:
            The steps made so far: one more than before, or fewer after a rollback.
        """
        if not self._is_entered:
            self._is_entered = True
            say("warning: nothing is watched: the loop belongs into `with Agent(...) as sentinel:`")
        self.newest_step += 1
        self._step_ended(loss, grad_norm, lr)
        return self.newest_step

    def batches(self, loader: Iterable[Batch]) -> Generator[Batch]:
        """The loader's batches, while the time to get them, their size and a fingerprint are noted."""
        iterator = iter(loader)
        while True:
            self._fetch_began()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._fetch_ended(batch)
            yield batch

    @guarded
    def record(self, name: str, value: Number) -> None:
        """Adds a series of your own to the reports: this step's value. Up to 16 names; nothing waits for a tensor."""
        if (known := self._readable(name, value)) is not None:
            self._agent.clock.record(name, known)

    @guarded
    def _begin(self) -> None:
        self.guard.off = True
        settings = resolve(self._options)
        if settings.mode == "off" or _rank() != 0:
            return
        for warning in settings.warnings:
            say(f"warning: {warning}")
        ranks = _ranks()
        self._every = settings.checkpoint_every
        if ranks > 1 and self._every:  # a save may be for all ranks together
            say("warning: checkpoint_every is ignored: there are several ranks")
            self._every = None
        device = next((each.device for each in self._model.parameters()), torch.device("cpu"))
        folder = Path(self._folder).absolute() / ".sentinel"
        self._agent = agent = Leader(settings, device=device, folder=folder, guard=self.guard, say=say)
        self._loop = StatefulLoop(self._model, self._optimizers, self._also)
        self.guard.off = False
        agent.start()
        agent.begin(self._attempt(ranks))
        self._hooks = [self._optimizers[0].register_step_pre_hook(self._optimizer_steps)]
        self._say_start(settings)
        agent.clock.batch_began(None)

    @guarded
    def _end(self, error: BaseException | None) -> None:
        agent = self._agent
        is_exit = isinstance(error, SystemExit) and not error.code
        if error is None or is_exit:
            agent.end("finished")
        else:  # Ctrl-C, or a SystemExit that somebody made of a signal, is asked for
            agent.end(
                "failed" if isinstance(error, Exception) else "interrupted", f"{type(error).__name__}: {error}"[:1000]
            )
        self.guard.off = True
        say(end_line(agent.tally()))

    @guarded
    def _optimizer_steps(self, optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
        reading = self._agent.clock.reading
        lr = optimizer.param_groups[0]["lr"]
        reading.lr = lr.detach().clone() if isinstance(lr, torch.Tensor) else float(lr)

    @guarded
    def _fetch_began(self) -> None:
        clock = self._agent.clock
        if not self._draws:
            self._draws = True
            clock.restart()
        if self._in_batch:
            clock.batch_ended(None)
        clock.fetch_began()

    @guarded
    def _fetch_ended(self, batch: Any) -> None:
        clock = self._agent.clock
        clock.fetch_ended()
        clock.batch_began(batch)
        self._in_batch = True

    @guarded
    def _step_ended(self, loss: Number | None, grad_norm: Number | None, lr: Number | None) -> None:
        agent = self._agent
        reading = agent.clock.reading
        known = self._readable("loss", loss)
        agent.clock.batch_ended(known if isinstance(known, torch.Tensor) else None)
        reading.loss = known if isinstance(known, float) else None
        reading.grad_norm = self._readable("grad_norm", grad_norm)
        if lr is not None:
            reading.lr = self._readable("lr", lr)
        self._loop.step = step = self.newest_step
        agent.step_ended(step)
        self._in_batch = False
        if self._every and step % self._every == 0:
            agent.save_checkpoint(self._loop.save)
        if agent.commands:
            agent.roll_back(self._loop)
            self.newest_step = agent.step
        if not self._draws:
            agent.clock.batch_began(None)

    def _readable(self, name: str, value: Number | None) -> Number | None:
        """The value as one that the agent's thread may read later, whatever the loop does with it meanwhile."""
        if value is None or not isinstance(value, torch.Tensor):
            return None if value is None else float(value)
        if type(value) in PLAIN_TENSORS and value.numel() == 1:
            if value.device.type == "cpu":
                return float(value.detach())
            if value.is_cuda:
                return value.detach()
        if name not in self._said:
            self._said.add(name)
            kind = f"{type(value).__name__} of shape {tuple(value.shape)} on {value.device.type}"
            say(f"warning: {name} is not read: expected a number or a plain tensor of one element, got a {kind}")
        return None

    def _attempt(self, ranks: int) -> Attempt:
        has_scaler = any(isinstance(each, torch.amp.GradScaler) for each in self._also)
        kind = next((each.dtype for each in self._model.parameters()), torch.float32)
        return Attempt(
            step=self.newest_step,
            is_resumed=self.newest_step > 0,
            max_steps=self._max_steps,
            world_size=ranks,
            precision="16-mixed" if has_scaler else str(kind).removeprefix("torch."),
            accumulate=1,
            rollback_impossible="a loop of several ranks is observed only" if ranks > 1 else "",
            versions={"python": platform.python_version(), "torch": torch.__version__},
        )

    def _say_start(self, settings: Settings) -> None:
        agent = self._agent
        assert agent.keeper is not None
        if self._every:
            saves = f"the agent saves every {self._every} steps; pinned under {agent.keeper.store.folder}"
        else:
            saves = "the agent saves none, so it has nothing to go back to: checkpoint_every=N saves every N steps"
        permit = "" if settings.mode == "act" else '; mode="act" allows it, until then it is only proposed'
        undo = "forward, in place, within step(): model, optimizers and what else is named go back, the data goes on"
        reads = "loss and gradient norm as they are given, learning rate, step time, peak memory, and with batches() "
        reads += "data wait, samples, tokens and fingerprints"
        rollback = f"none, {agent.impossible}" if agent.impossible else f"{undo}{permit}"
        for line in loop_lines(opening_of(agent), saves, rollback, reads, gpu_problem=agent.gpu.problem):
            say(line)


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else int(os.environ.get("RANK", "0"))


def _ranks() -> int:
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))
