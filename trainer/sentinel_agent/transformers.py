"""The agent in a training by the Hugging Face Trainer: ``Trainer(callbacks=[SentinelCallback()])``. It observes only.

The Trainer's logs replace a loss that is not finite by the average before it, and its hook before the optimizer's step
comes after clipping. So the loss is taken from the model's forward pass and the norm from the Trainer's own log. The
only module with transformers.
"""

from __future__ import annotations

import atexit
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers import __version__ as transformers_version

from sentinel.protocol.observations import Mode
from sentinel_agent.agent import Leader
from sentinel_agent.attempt import Attempt
from sentinel_agent.contents import non_finite
from sentinel_agent.fail_open import Guard, guarded
from sentinel_agent.folder_checkpoints import FolderCheckpoints
from sentinel_agent.gradient_norm import gradient_norm
from sentinel_agent.readings import StepReading
from sentinel_agent.settings import resolve
from sentinel_agent.start_lines import end_line, loop_lines, opening_of, say

NO_ROLLBACK = "a training by the Hugging Face Trainer is observed only"


class SentinelCallback(TrainerCallback):
    """Watches a training of the Hugging Face Trainer; the first of several processes speaks for them.

    Args:
        run: the run's name; by default ``SENTINEL_RUN``, else one is made up and found again at a resume.
        url: the daemon's address; by default ``SENTINEL_URL``, else ``http://127.0.0.1:8321``.
        mode: ``off`` does nothing at all; also ``SENTINEL_MODE``. Anything else observes.
        token_file: a file with the daemon's token; by default ``SENTINEL_TOKEN_FILE``.
        mistyped: anything else; it is told with the nearest right name.
    """

    def __init__(
        self,
        *,
        run: str | None = None,
        url: str | None = None,
        mode: Mode | None = None,
        token_file: str | Path | None = None,
        **mistyped: object,
    ) -> None:
        self.guard = Guard(say)
        self.guard.off = True
        self._options = {"run": run, "url": url, "mode": mode, "token_file": token_file, **mistyped}
        self._hooks: list[Any] = []
        self._held: StepReading | None = None
        self._loss: torch.Tensor | None = None
        self._is_scaled = self._computes_norm = False
        self._is_open = False

    @guarded
    def record(self, name: str, value: float | torch.Tensor) -> None:
        """Adds a series of your own to the reports: this step's value. Up to 16 names; nothing waits for a tensor."""
        self.agent.clock.record(name, value)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._close("interrupted", "another training began")  # the one before ended by an exception
        self.guard = Guard(say)
        self._begin(args, state, kwargs["model"])

    @guarded
    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.agent.clock.fetch_ended()
        if not self._hooks:
            self.agent.clock.batch_began(None)

    @guarded
    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._hooks:
            self.agent.clock.backward_ended()
            self._end_batch()

    @guarded
    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        clock, optimizer = self.agent.clock, kwargs["optimizer"]
        if self._hooks:
            clock.backward_ended()
        lr = optimizer.param_groups[0]["lr"]
        clock.reading.lr = lr.detach().clone() if isinstance(lr, torch.Tensor) else float(lr)
        if self._computes_norm:
            self._computes_norm = False  # for good, if it raises
            clock.reading.grad_norm = gradient_norm(optimizer)
            self._computes_norm = True

    @guarded
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        agent = self.agent
        self._tell_held()
        self._end_batch()
        reading = agent.clock.reading
        if reading.losses:
            reading.losses = [self._loss_of_step(reading.losses, args)]
        if self._hooks and not reading.losses and not agent.step:
            say("warning: the model's forward pass returns no loss, so the loss is not read")
        self._held = agent.close_step(state.global_step)
        if not control.should_log:  # else its norm comes with the log in a moment
            self._tell_held()
        agent.clock.fetch_began()

    @guarded
    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        logs = kwargs.get("logs") or {}
        if self._held is not None and "loss" in logs:
            if self._held.grad_norm is None and isinstance(norm := logs.get("grad_norm"), int | float):
                self._held.grad_norm = float(norm)
            self._tell_held()
        self.agent.clock.fetch_began()

    @guarded
    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.agent.clock.fetch_began()

    @guarded
    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not args.save_only_model:
            problem = None  # of several processes this one may hold a part only
            if args.world_size == 1:
                model, optimizer = kwargs["model"], kwargs["optimizer"]
                contents = {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]}
                problem = non_finite(contents, {name for name, _ in model.named_parameters()})
            folder = Path(args.output_dir or ".").absolute() / f"checkpoint-{state.global_step}"
            self._checkpoints.saved(folder, state.global_step, problem)
        self.agent.clock.fetch_began()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._close("finished", "")

    @guarded
    def _begin(self, args: TrainingArguments, state: TrainerState, model: Any) -> None:
        self.guard.off = True
        settings = resolve(self._options)
        if settings.mode == "off" or not state.is_world_process_zero:
            return
        for warning in settings.warnings:
            say(f"warning: {warning}")
        # What begins with an underscore is not pushed to the hub.
        folder = Path(args.output_dir or ".").absolute() / ("_sentinel" if args.push_to_hub else ".sentinel")
        self.agent = agent = Leader(settings, device=args.device, folder=folder, guard=self.guard, say=say)
        self._checkpoints = FolderCheckpoints(agent.attempt, post=agent.courier.inbox.append, offer=agent.courier.offer)
        self.guard.off = False
        self._computes_norm = not args.max_grad_norm and args.world_size == 1
        agent.start()
        self._is_open = True
        atexit.register(self._at_exit)
        agent.begin(_attempt(args, state))
        hidden = _why_no_loss(args, model)
        if not hidden:
            self._hooks = [
                model.register_forward_pre_hook(self._forward_begins, with_kwargs=True),
                model.register_forward_hook(self._forward_ended, with_kwargs=True),
            ]
        norm = (
            "gradient norm" if self._computes_norm else f"gradient norm every {state.logging_steps} steps (as logged)"
        )
        loss = f"no loss ({hidden})" if hidden else "loss (from the model's forward pass)"
        reads = f"{loss}, {norm}, learning rate, phase times, samples, peak memory, tokens where batches are token ids"
        saves = "as the Trainer saves them, reported and not pinned: save_total_limit may delete what is good"
        for line in loop_lines(opening_of(agent), saves, f"none, {NO_ROLLBACK}", reads, gpu_problem=agent.gpu.problem):
            say(line)

    @guarded
    def _forward_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if module.training:
            self.agent.clock.batch_began(kwargs or args)

    @guarded
    def _forward_ended(
        self, module: torch.nn.Module, _args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        if not module.training:
            return
        self.agent.clock.backward_began()
        loss = output.get("loss") if isinstance(output, Mapping) else output[0]
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            self._loss = loss.detach().clone()  # the Trainer may multiply it in place
            self._is_scaled = kwargs.get("num_items_in_batch") is not None

    def _loss_of_step(self, losses: list[torch.Tensor], args: TrainingArguments) -> torch.Tensor:
        """The mean over the micro-batches: of their samples, or of their tokens, by whose number the model divides."""
        total = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        if not self._is_scaled:
            return total / len(losses)
        return total * args.world_size if args.average_tokens_across_devices else total

    def _end_batch(self) -> None:
        self.agent.clock.batch_ended(self._loss)
        self._loss = None

    def _tell_held(self) -> None:
        if self._held is not None:
            self.agent.courier.inbox.append(self._held)
            self._held = None

    def _close(self, outcome: Literal["finished", "failed", "interrupted"], reason: str) -> None:
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self._at_exit)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._end(outcome, reason)

    @guarded
    def _end(self, outcome: Literal["finished", "failed", "interrupted"], reason: str) -> None:
        self._tell_held()
        self._checkpoints.look_for_gone()
        self.agent.end(outcome, reason)
        self.guard.off = True
        say(end_line(self.agent.tally()))

    def _at_exit(self) -> None:
        # No hook tells of an exception; Python keeps the one that ended the program.
        error = getattr(sys, "last_value", None)
        if error is None:
            self._close("interrupted", "the program ended within the training")
        else:
            outcome: Literal["failed", "interrupted"] = "failed" if isinstance(error, Exception) else "interrupted"
            self._close(outcome, f"{type(error).__name__}: {error}"[:1000])


def _attempt(args: TrainingArguments, state: TrainerState) -> Attempt:
    return Attempt(
        step=state.global_step,
        is_resumed=state.global_step > 0,
        max_steps=state.max_steps,
        world_size=args.world_size,
        precision="16-mixed" if args.fp16 else "bf16-mixed" if args.bf16 else "32-true",
        accumulate=args.gradient_accumulation_steps,
        rollback_impossible=NO_ROLLBACK,
        versions={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers_version,
        },
    )


def _why_no_loss(args: TrainingArguments, model: Any) -> str:
    """Why the model's forward pass cannot be watched; empty if it can."""
    if args.torch_compile or hasattr(model, "_orig_mod"):
        return "a hook would break the compiled model's graph"
    return "DataParallel calls copies of the model, in threads" if args.n_gpu > 1 else ""
