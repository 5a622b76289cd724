"""What a training run is made of, and the two sizes it comes in.

`laptop` is for a demonstration: 360,000 parameters, some 50 ms a step on one CPU core, and a loss that falls from 5.1
nats to 2.3 in 100 steps and to 1.9 in 300. `124M` is GPT-2 small's size, trained as GPT-3's smallest model was (Brown
et al., arXiv:2005.14165, table 2.1), for 20 tokens a parameter (Hoffmann et al., arXiv:2203.15556).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of a language model."""

    vocabulary_size: int
    context_tokens: int
    layers: int
    heads: int
    width: int
    hidden_width: int
    """Of the feed-forward, whose gate doubles it: 8/3 of the width costs what a plain one of 4 widths does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizationConfig:
    """How the weights move."""

    batch_sequences: int
    accumulate_batches: int
    """Batches whose gradients are averaged in one optimizer step."""
    steps: int
    """Optimizer steps of the whole schedule; a run that stops earlier is its prefix."""
    warm_up_steps: int
    peak_learning_rate: float
    final_learning_rate_ratio: float
    beta1: float
    beta2: float
    weight_decay: float
    clip_norm: float

    @property
    def step_sequences(self) -> int:
        """Sequences in one optimizer step."""
        return self.batch_sequences * self.accumulate_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model with the way to train it."""

    model: ModelConfig
    optimization: OptimizationConfig
    precision_on_cpu: str
    """Lightning's name for it; on CUDA it is always bf16-mixed."""
    cpu_threads: int | None
    """None for as many as PyTorch finds cores."""
    checkpoint_every_steps: int
    text_limit_bytes: int | None


class PresetName(StrEnum):
    """The presets, as the command line spells them."""

    LAPTOP = "laptop"
    GPT2_SMALL = "124M"


PRESETS: Final[Mapping[PresetName, Preset]] = {
    PresetName.LAPTOP: Preset(
        model=ModelConfig(vocabulary_size=257, context_tokens=64, layers=2, heads=4, width=128, hidden_width=256),
        optimization=OptimizationConfig(
            batch_sequences=24,
            accumulate_batches=1,
            steps=2_000,
            warm_up_steps=50,
            # Of 3, 4, 6 and 8e-3, 6e-3 trains best, with a loss of 1.67 at step 600 where this has 1.69 (2 seeds). But
            # the higher the rate, the longer a corrupted batch is felt, and to show that is what this preset is for.
            peak_learning_rate=8e-3,
            final_learning_rate_ratio=0.1,
            beta1=0.9,
            # So few tokens a step make gradients noisy, which asks for a longer memory than the usual 0.95.
            beta2=0.99,
            weight_decay=0.1,
            clip_norm=1.0,
        ),
        # A step takes 48 ms in float32 and 53 ms in bf16-mixed, on a core that multiplies bfloat16 in hardware (AMX).
        precision_on_cpu="32-true",
        # Threads wait for each other at every operation: beside one busy process on the same two cores, a step of two
        # threads took 20 times as long, and of one thread no longer (measured).
        cpu_threads=1,
        checkpoint_every_steps=50,
        text_limit_bytes=4_000_000,
    ),
    PresetName.GPT2_SMALL: Preset(
        # GPT-2's 50,257 tokens, filled up to a multiple of 64, as matrix units like it.
        model=ModelConfig(
            vocabulary_size=50_304, context_tokens=1_024, layers=12, heads=12, width=768, hidden_width=2_048
        ),
        optimization=OptimizationConfig(
            batch_sequences=16,
            accumulate_batches=32,
            steps=4_700,
            warm_up_steps=715,
            peak_learning_rate=6e-4,
            final_learning_rate_ratio=0.1,
            beta1=0.9,
            beta2=0.95,
            weight_decay=0.1,
            clip_norm=1.0,
        ),
        precision_on_cpu="bf16-mixed",
        cpu_threads=None,
        checkpoint_every_steps=200,
        text_limit_bytes=None,
    ),
}
