"""Trains a small language model under the eyes of Sentinel: `python -m sentinel_reference.train`."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import torch
import typer
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor
from torchdata.stateful_dataloader import StatefulDataLoader

from sentinel_reference.config import PRESETS, Preset, PresetName
from sentinel_reference.data import DataError, PackedSequences, load_tokens
from sentinel_reference.faults import KINDS, Fault, FaultError, FaultInjector, corrupt, parse_fault
from sentinel_reference.module import LanguageModeling

PRINT_EVERY_STEPS: Final = 50
INTERRUPTED_EXIT_CODE: Final = 130
TERMINATED_EXIT_CODE: Final = 143
"""Shells' codes for an end by SIGINT and SIGTERM: 128 and the signal's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training run."""

    preset: Preset
    root: Path
    """Where everything is written; checkpoints under `checkpoints`."""
    data: Path | None = None
    """None for the standard library's sources."""
    seed: int = 0
    max_steps: int | None = None
    """Where to stop if not where the schedule ends."""
    checkpoint_every_steps: int | None = None
    """None for the preset's."""
    faults: Sequence[Fault] = ()
    fault_log: Path | None = None
    resume_from: Path | None = None


class StepLog(Callback):
    """Prints where the training stands, and keeps every step's loss if asked: the trainer's own word.

    Args:
        is_quiet: do not print.
        path: gets a line of JSON an optimizer step: `step`, from 1; `position` of the step's last batch in the data;
            `loss`, the mean over its batches, exact to the bit. None to keep nothing.
    """

    def __init__(self, *, is_quiet: bool, path: Path | None) -> None:
        self._is_quiet = is_quiet
        self._path = path
        self._step_before = 0
        self._loss = torch.zeros(())
        self._printed_at = 0.0

    def on_train_start(self, trainer: Trainer, module: LanguageModeling) -> None:
        self._printed_at = time.perf_counter()
        if not self._is_quiet:
            parameters = sum(weight.numel() for weight in module.parameters())
            print(f"training {parameters:,} parameters to step {trainer.max_steps:,}", flush=True)

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        self._step_before = trainer.global_step

    def on_train_batch_end(
        self,
        trainer: Trainer,
        _module: LanguageModeling,
        outputs: Any,  # "loss": (), divided by the number of accumulated batches
        batch: Mapping[str, Tensor],
        *_: Any,
    ) -> None:
        self._loss = self._loss + outputs["loss"]
        if trainer.global_step == self._step_before:
            return
        loss, self._loss = self._loss, torch.zeros(())
        if self._path:
            line = {"step": trainer.global_step, "position": int(batch["position"][0]), "loss": float(loss)}
            with self._path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        if not self._is_quiet and trainer.global_step % PRINT_EVERY_STEPS == 0:
            now = time.perf_counter()
            step_ms = (now - self._printed_at) / PRINT_EVERY_STEPS * 1e3
            self._printed_at = now
            print(
                f"step {trainer.global_step:,} of {trainer.max_steps:,}: loss {loss:.3f}, {step_ms:.0f} ms a step",
                flush=True,
            )


def train(job: Job, callbacks: Sequence[Callback] = ()) -> Trainer:
    """Run a job to its end and return the trainer.

    Callbacks are called in the order given, and after the faults, which they are to observe.

    Raises:
        DataError: the data cannot be trained on.
        FaultError: a fault found nothing to strike.
    """
    seed_everything(job.seed, verbose=False)
    preset, optimization = job.preset, job.preset.optimization
    if job.faults:
        callbacks = [FaultInjector(job.faults, optimization.step_sequences, log=job.fault_log), *callbacks]
    checkpoints = ModelCheckpoint(
        job.root / "checkpoints",
        filename="{step}",
        every_n_train_steps=job.checkpoint_every_steps or preset.checkpoint_every_steps,
        save_top_k=-1,
    )
    trainer = Trainer(
        default_root_dir=job.root,
        max_steps=job.max_steps or optimization.steps,
        accumulate_grad_batches=optimization.accumulate_batches,
        gradient_clip_val=optimization.clip_norm,
        precision="bf16-mixed" if torch.cuda.is_available() else preset.precision_on_cpu,
        devices=1,
        callbacks=[*callbacks, checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LanguageModeling(preset), _loader(job), ckpt_path=job.resume_from)
    return trainer


def _loader(job: Job) -> StatefulDataLoader[dict[str, Tensor]]:
    model, optimization = job.preset.model, job.preset.optimization
    sound = PackedSequences(
        load_tokens(job.data, limit_bytes=job.preset.text_limit_bytes),
        source=str(job.data or "the standard library"),
        context_tokens=model.context_tokens,
        vocabulary_size=model.vocabulary_size,
        seed=job.seed,
    )
    data = corrupt(sound, job.faults, optimization.step_sequences)
    return StatefulDataLoader(data, batch_size=optimization.batch_sequences)


def _parse_faults(texts: Sequence[str]) -> list[Fault]:
    try:
        return [parse_fault(text) for text in texts]
    except FaultError as error:
        raise typer.BadParameter(str(error), param_hint="--fault") from error


def _quieten_lightning() -> None:
    """Its advice is for the writer of a script; what goes wrong is still told."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module=r"lightning\.pytorch|torchdata")


def main(  # noqa: PLR0913 - each parameter is an option of the command line
    *,
    preset: PresetName = PresetName.LAPTOP,
    data: Annotated[
        Path | None,
        typer.Option(help="A folder of text, a text file, or a .bin of uint16 token ids; else Python's own library."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    root: Annotated[Path, typer.Option(file_okay=False, help="Where to write.")] = Path("reference-run"),
    max_steps: Annotated[int | None, typer.Option(min=1, help="Where to stop; else where the schedule ends.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Steps; else as the preset says.")] = None,
    resume: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A checkpoint to go on from.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="On the CPU; else as the preset says.")] = None,
    fault: Annotated[
        list[str] | None, typer.Option(metavar="KIND@STEP[:LENGTH]", help=f"Repeatable. Kinds: {', '.join(KINDS)}.")
    ] = None,
    fault_log: Annotated[Path | None, typer.Option(help="Gets a line of JSON for each fault injected.")] = None,
    step_log: Annotated[Path | None, typer.Option(help="Gets a line of JSON for each optimizer step.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress.")] = False,
    run: Annotated[str | None, typer.Option(help="The run's name at the daemon.")] = None,
    url: Annotated[str | None, typer.Option(help="The daemon's address.")] = None,
    mode: Annotated[
        Literal["observe", "act", "off"], typer.Option(envvar="SENTINEL_MODE", help="What Sentinel may do at most.")
    ] = "act",
) -> None:
    """Train a small language model under the eyes of Sentinel."""
    _quieten_lightning()
    if count := threads or PRESETS[preset].cpu_threads:
        torch.set_num_threads(count)
    job = Job(
        preset=PRESETS[preset],
        root=root,
        data=data,
        seed=seed,
        max_steps=max_steps,
        checkpoint_every_steps=checkpoint_every,
        faults=_parse_faults(fault or ()),
        fault_log=fault_log,
        resume_from=resume,
    )
    callbacks: list[Callback] = [StepLog(is_quiet=quiet, path=step_log)]
    if mode != "off":
        from sentinel_agent import SentinelCallback  # noqa: PLC0415 - off means without a line of the agent

        callbacks.append(SentinelCallback(run=run, url=url, mode=mode))
    try:
        train(job, callbacks)
    except DataError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from error
    except FaultError as error:
        raise typer.BadParameter(str(error), param_hint="--fault") from error
    except SIGTERMException as error:
        raise typer.Exit(TERMINATED_EXIT_CODE) from error
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning's own code for it is 1
            raise typer.Exit(INTERRUPTED_EXIT_CODE) from error
        raise


if __name__ == "__main__":
    typer.run(main)
