from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sentinel_reference.config import PRESETS, PresetName
from sentinel_reference.module import learning_rate_ratio
from sentinel_reference.train import Job


@pytest.mark.parametrize("name", PresetName)
def test_learning_rate_rises_to_its_peak_and_falls_to_its_floor(name: PresetName) -> None:
    """The rate is never zero, peaks where the warm-up ends, falls from there, and stays at the floor past the end."""
    config = PRESETS[name].optimization
    rates = [learning_rate_ratio(step, config) for step in range(config.steps + 10)]
    peak = config.warm_up_steps
    assert rates[0] == pytest.approx(1 / peak)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak] == 1.0
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[config.steps :] == pytest.approx([config.final_learning_rate_ratio] * 10)


def test_bf16_mixed_trains_with_clipping(job: Job, run: Callable[..., list[dict[str, float]]]) -> None:
    """Fused AdamW, gradient clipping and bf16-mixed go together, and the loss falls."""
    losses = [line["loss"] for line in run(replace(job, preset=replace(job.preset, precision_on_cpu="bf16-mixed")))]
    assert losses[-1] < losses[0] - 0.5
