from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sentinel.launcher import stacks
from sentinel.launcher.processes import Training, adopt_orphans, descendants, state_of
from sentinel.protocol.launching import FOLDER_VARIABLE
from tests.launched import NOBODY, Launched, is_alive, wait

ROOT = Path(__file__).parents[2]
PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "trainer")]), "OMP_NUM_THREADS": "1"}
RANKS = """
import os, sys, time
from pathlib import Path
from sentinel_agent.standby import register_stacks

def in_a_collective():
    while True:
        time.sleep(60)

rank = int(os.environ["RANK"])
register_stacks(rank)
Path(f"ready-{rank}").write_text("now")
if "die once" in sys.argv:
    if Path("again").exists():
        sys.exit(0)
    while not Path("ready-1").exists() or not Path("ready-0").exists():
        time.sleep(0.01)
    if rank == 1:
        Path("again").write_text("now")
        os.kill(os.getpid(), 9)
in_a_collective()
"""


@contextmanager
def training(folder: Path, *command: str) -> Iterator[Training]:
    """A command under a launcher's part of this process, with its folder for stacks; all of it ends with the block."""
    environment = {**os.environ, **PATHS, FOLDER_VARIABLE: str(folder)}
    before = Path.cwd()
    os.chdir(folder)
    try:
        process = Training([sys.executable, *command], environment, stderr=2, others=descendants())
    finally:
        os.chdir(before)
    try:
        yield process
    finally:
        assert process.end(0.1)
        adopt_orphans(adopts=False)  # the other tests' processes are none of ours


def test_a_hung_training_says_where_every_thread_stands(tmp_path: Path) -> None:
    """The training's thread in the call that never returns, and the agent's own, each by file and line."""
    with training(tmp_path, "-m", "tests.launcher.trainee", "40", "hang@6") as process:
        wait((tmp_path / "faults.jsonl").exists)
        (found,) = stacks.collect(tmp_path, process.processes())
        again = stacks.collect(tmp_path, process.processes())
    assert found.rank == 0
    assert "_wait_for_a_lost_rank" in found.text
    assert "courier.py" in found.text
    assert "The kernel says: state S" in found.text
    assert len(again) == 1, "it can be asked again"
    assert json.loads((tmp_path / "faults.jsonl").read_text())["kind"] == "hang"


def test_a_stopped_process_is_told_to_be_stopped(tmp_path: Path) -> None:
    """It can write nothing; the kernel's word stands instead."""
    (tmp_path / "program.py").write_text(RANKS)
    os.environ["RANK"] = "3"
    try:
        with training(tmp_path, "program.py") as process:
            wait((tmp_path / "ready-3").exists)
            (one,) = process.processes()
            os.kill(one, signal.SIGSTOP)
            wait(lambda: state_of(one) == "T")
            (found,) = stacks.collect(tmp_path, {one})
    finally:
        del os.environ["RANK"]
    assert found.rank == 3
    assert "No answer" in found.text
    assert "state T" in found.text


def test_a_program_with_a_use_of_its_own_for_the_signal_keeps_it(tmp_path: Path) -> None:
    """It is not asked, and does not die of it."""
    with training(tmp_path, "-m", "tests.launcher.trainee", "40", "trap", "hang@6") as process:
        wait((tmp_path / "faults.jsonl").exists)
        assert stacks.collect(tmp_path, process.processes()) == []
        assert process.wait(0.2) is None


def test_who_has_prepared_nothing_is_not_signalled(tmp_path: Path) -> None:
    """A process whose file is there and that does not catch the signal would die of it."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / f"0-{child.pid}.stacks").write_text("")
        assert stacks.collect(tmp_path, {child.pid}) == []
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_every_rank_of_torchrun_is_found_and_ended(tmp_path: Path) -> None:
    """Its workers have sessions of their own: they are found all the same, and none is left."""
    (tmp_path / "program.py").write_text(RANKS)
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "program.py")
    with training(tmp_path, *torchrun) as process:
        wait(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
        found = stacks.collect(tmp_path, process.processes())
        everybody = process.processes()
    assert [each.rank for each in found] == [0, 1]
    assert all("in_a_collective" in each.text for each in found)
    assert not any(map(is_alive, everybody))


@pytest.mark.slow
def test_torchrun_is_started_again_when_a_rank_dies(tmp_path: Path) -> None:
    """The rank that is left hanging is ended with it, and the second start runs through."""
    (tmp_path / "program.py").write_text(RANKS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    options = ("--mode", "act", "--url", NOBODY, "--patience", "0.2")
    with Launched(tmp_path, [*torchrun, "program.py", "die once"], *options, environment=PATHS) as launched:
        assert launched.end(90.0) == 0, launched.stderr
    assert "starting the training again" in launched.stderr
