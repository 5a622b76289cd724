from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sentinel_reference.config import PRESETS, PresetName
from sentinel_reference.faults import parse_fault
from sentinel_reference.train import Job, main

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def command() -> Callable[..., Any]:
    """Runs the command line with Sentinel left out."""
    app = typer.Typer()
    app.command()(main)
    return lambda *arguments: CliRunner().invoke(app, ["--mode", "off", *map(str, arguments)])


def test_same_seed_is_the_same_run_to_the_bit(job: Job, run: Run) -> None:
    """Two runs of one seed have equal losses in every bit; another seed has others."""
    first, again, other = (run(replace(job, seed=seed, root=job.root / str(n))) for n, seed in enumerate((0, 0, 1)))
    assert first == again
    assert first != other
    assert len(first) == 12


def test_shorter_run_is_the_beginning_of_the_longer(job: Job, run: Run) -> None:
    """Where a run stops changes nothing of what comes before: the schedule is the preset's."""
    assert run(replace(job, max_steps=7)) == run(job)[:7]


@pytest.mark.parametrize("step", [5, 10])
def test_resume_goes_on_with_the_next_data(job: Job, run: Run, step: int) -> None:
    """Resumed from a checkpoint, positions and losses are those of the run that was never stopped, to the bit."""
    whole = run(job)
    resumed = run(replace(job, resume_from=job.root / "checkpoints" / f"step={step}.ckpt"))
    assert resumed == whole[step:]
    assert [line["position"] for line in whole] == [8 * count + 4 for count in range(12)]


def test_laptop_learns_and_corrupt_data_does_lasting_harm(job: Job, run: Run) -> None:
    """The laptop preset is below 2.6 nats after 80 steps; 8 corrupted ones cost 0.4 nats still 15 to 25 steps later."""
    laptop = replace(job, preset=PRESETS[PresetName.LAPTOP], max_steps=113)
    losses = [line["loss"] for line in run(replace(laptop, faults=[parse_fault("corrupt_data@80:8")]))]
    before, after = median(losses[60:80]), median(losses[103:113])
    assert before < 2.6
    assert after > before + 0.4


def test_checkpoints_are_all_kept(job: Job, run: Run) -> None:
    """A checkpoint is written at each multiple of the interval, and stays."""
    run(replace(job, checkpoint_every_steps=3))
    assert {path.name for path in (job.root / "checkpoints").iterdir()} == {
        f"step={step}.ckpt" for step in (3, 6, 9, 12)
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fault", "corrupt_dat@3"), r"--fault: .*did you mean corrupt_data"),
        (("--data", "nowhere"), r"--data: nowhere does not exist"),
        (("--fault", "flip_checkpoint@1", "--max-steps", "2"), r"--fault: .*has no checkpoint"),
        (("--preset", "laptpo"), r"--preset.*laptop"),
        (("--max-steps", "0"), r"--max-steps"),
    ],
)
def test_wrong_option_is_told_without_a_trace(
    command: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """What was mistyped or cannot be used is named beside its option, with what would be right, and exit code 2."""
    outcome = command("--root", tmp_path, *arguments)
    assert outcome.exit_code == 2
    assert re.search(message, re.sub(r"[\s│]+", " ", outcome.output))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_the_training_cleanly(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Told to stop, the trainer ends by itself with the shell's code for the signal, and prints no stack."""
    command = [sys.executable, "-m", "sentinel_reference.train", "--mode", "off", "--root", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as training:
        assert training.stdout
        assert training.stdout.readline().startswith("training 360,")
        training.send_signal(number)
        rest, _ = training.communicate(timeout=30)
    assert training.returncode == code
    assert "Traceback" not in rest
