"""A training of seconds, as a program: ``python -m tests.launcher.trainee STEPS [FAULT...]`` in a folder of its own.

Every optimizer step takes 30 ms at least, so that checkpoints are verified while there still are steps to come. A
process that is given ``trap`` has a use of its own for the signal by which stacks are asked for.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from sentinel import clock
from sentinel.protocol.launching import STACKS_SIGNAL
from sentinel_agent import SentinelCallback
from sentinel_reference.faults import parse_fault
from sentinel_reference.train import Job, StepLog, train
from tests.trainer.sentinel_reference.conftest import TINY


class Slow(Callback):
    """Takes its time."""

    def on_train_batch_end(self, *_: Any) -> None:
        """Half a step."""
        clock.sleep(0.015)


def losses(folder: Path) -> dict[int, float]:
    """The loss of each step, as it was last."""
    lines = map(json.loads, (folder / "steps.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def main(steps: str, *faults: str) -> None:
    """Trains."""
    torch.set_num_threads(1)
    if "trap" in faults:
        signal.signal(STACKS_SIGNAL, lambda *_: print("trapped", flush=True))
    job = Job(
        preset=TINY,
        root=Path("run"),
        max_steps=int(steps),
        faults=[parse_fault(fault) for fault in faults if "@" in fault],
        fault_log=Path("faults.jsonl"),
    )
    train(job, [StepLog(is_quiet=True, path=Path("steps.jsonl")), Slow(), SentinelCallback()])


if __name__ == "__main__":
    main(*sys.argv[1:])
