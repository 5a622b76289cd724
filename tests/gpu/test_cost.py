"""What the agent costs a step on the device: printed, and bounded loosely."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
import torch

from sentinel_agent import Agent
from tests.daemons import DaemonProcess
from tests.gpu.plain_training import Training

pytestmark = pytest.mark.gpu
STEPS, ROUNDS = 300, 7


def step_s(training: Training, sentinel: Agent | None) -> float:
    """Seconds of one step, the mean over some hundred."""
    torch.cuda.synchronize()
    began = perf_counter()
    training.run(STEPS, sentinel)
    torch.cuda.synchronize()
    return (perf_counter() - began) / STEPS


def test_cost_of_a_step(cuda: torch.device, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """The agent adds less than two milliseconds to a step, on a busy machine too; the figure is printed at the end."""
    daemon = DaemonProcess(tmp_path)
    training = Training(cuda)
    training.run(50)
    with training.agent(tmp_path, url=daemon.url) as sentinel:
        pairs = [(step_s(training, None), step_s(training, sentinel)) for _ in range(ROUNDS)]
    assert daemon.end(signal.SIGTERM) == 0
    alone_s = median(alone for alone, _ in pairs)
    added_s = median(watched - alone for alone, watched in pairs)
    figure(
        f"plain loop: {alone_s * 1e6:.0f} us a step alone, the agent adds {added_s * 1e6:.0f} us "
        f"(loss, norm and one series; median of {ROUNDS} pairs of {STEPS} steps)"
    )
    assert added_s < 2e-3
