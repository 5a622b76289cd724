"""A model and text small enough that a step takes some milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from sentinel_reference.config import ModelConfig, OptimizationConfig, Preset
from sentinel_reference.train import Job, StepLog, train

TINY = Preset(
    model=ModelConfig(vocabulary_size=257, context_tokens=16, layers=2, heads=2, width=32, hidden_width=64),
    optimization=OptimizationConfig(
        batch_sequences=4,
        accumulate_batches=2,
        steps=40,
        warm_up_steps=4,
        peak_learning_rate=1e-2,
        final_learning_rate_ratio=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.1,
        clip_norm=1.0,
    ),
    precision_on_cpu="32-true",
    cpu_threads=1,
    checkpoint_every_steps=5,
    text_limit_bytes=50_000,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Twelve steps, each of two batches of four sequences of 16 bytes, with a checkpoint every five."""
    return Job(preset=TINY, root=tmp_path / "run", max_steps=12)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Trains a job, with callbacks, and returns the step log's lines."""
    torch.set_num_threads(1)

    def run_job(job: Job, *callbacks: Callback) -> list[dict[str, Any]]:
        path = tmp_path / "steps.jsonl"
        path.unlink(missing_ok=True)
        train(job, [StepLog(is_quiet=True, path=path), *callbacks])
        return [json.loads(line) for line in path.read_text().splitlines()]

    return run_job
