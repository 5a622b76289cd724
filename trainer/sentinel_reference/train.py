"""Trains a small language model under the eyes of Sentinel: `python -m sentinel_reference.train`."""

from __future__ import annotations

import difflib
import json
import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import lightning.pytorch as L
import torch
import typer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import Tensor
from torchdata.stateful_dataloader import StatefulDataLoader

from sentinel_reference.config import PRESETS, Preset, PresetName
from sentinel_reference.data import DataError, PackedSequences, load_tokens
from sentinel_reference.faults import Fault, FaultError, FaultInjector, corrupt, parse_fault
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
    """Where to stop before the schedule ends."""
    checkpoint_every_steps: int | None = None
    """None for the preset's."""
    faults: Sequence[Fault] = ()
    fault_log: Path | None = None
    resume_from: Path | None = None


def train(job: Job, callbacks: Sequence[L.Callback] = ()) -> L.Trainer:
    """Run a job to its end and return the trainer.

    Callbacks come after the faults, which they are to observe, and in the order given.

    Raises:
        DataError: the data cannot be trained on.
        FaultError: a fault found nothing to strike.
    """
    L.seed_everything(job.seed, verbose=False)
    preset, optimization = job.preset, job.preset.optimization
    path = job.data
    tokens = load_tokens(path, limit_bytes=preset.text_limit_bytes)
    sound = PackedSequences(
        tokens,
        source=str(path or "the standard library"),
        context_tokens=preset.model.context_tokens,
        vocabulary_size=preset.model.vocabulary_size,
        seed=job.seed,
    )
    step_sequences = optimization.step_sequences
    loader = StatefulDataLoader(corrupt(sound, job.faults, step_sequences), batch_size=optimization.batch_sequences)
    injector = [FaultInjector(job.faults, step_sequences, log=job.fault_log)] if job.faults else []
    checkpoints = ModelCheckpoint(
        job.root / "checkpoints",
        filename="{step}",
        every_n_train_steps=job.checkpoint_every_steps or preset.checkpoint_every_steps,
        save_top_k=-1,
    )
    trainer = L.Trainer(
        default_root_dir=job.root,
        max_steps=job.max_steps or optimization.steps,
        accumulate_grad_batches=optimization.accumulate_batches,
        gradient_clip_val=optimization.clip_norm,
        precision="bf16-mixed" if torch.cuda.is_available() else preset.precision_on_cpu,
        devices=1,
        callbacks=[*injector, *callbacks, checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LanguageModeling(preset), loader, ckpt_path=job.resume_from)
    return trainer
