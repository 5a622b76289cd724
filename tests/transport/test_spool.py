from __future__ import annotations

import math
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.protocol.ids import AttemptId, SenderId
from sentinel.protocol.observations import Heartbeat, StepReport
from sentinel.transport.spool import TRIED_AGAIN_S, Kept, Spool

SENDER = SenderId("rank-0")


@dataclass
class Clock:
    """Monotonic seconds that pass when told."""

    now: float = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def kept(*counters: int, attempt: str = "a-1", padding: int = 0) -> list[Kept]:
    """Observations with these numbers."""
    return [
        Kept(
            attempt=AttemptId(attempt),
            sender=SENDER,
            counter=counter,
            offered_at=float(counter),
            observation=StepReport(at=0.0, step=counter, loss=math.inf, batch_fingerprint="x" * padding),
        )
        for counter in counters
    ]


@pytest.fixture
def open_spool(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    """Opens spools of attempts in one folder and closes them at the end."""
    opened: list[Spool] = []

    def open_one(attempt: str = "a-1", **options: object) -> Spool:
        opened.append(Spool(tmp_path / "spool", attempt=AttemptId(attempt), sender=SENDER, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for spool in opened:
        spool.close()


def drained(spool: Spool, limit: int = 500) -> list[tuple[str, int]]:
    """Takes everything out: attempt and number of each, in order."""
    found = []
    while batch := spool.oldest(limit):
        found += [(each.attempt, each.counter) for each in batch]
        spool.settled(len(batch))
    return [(str(attempt), counter) for attempt, counter in found]


def files(folder: Path) -> list[Path]:
    """The files of lines, oldest first."""
    return sorted(folder.glob("spool/*/*/*.lines"))


def test_what_is_put_comes_out_once_and_in_order(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    """Infinities and numbers survive the disk, and nothing is left on it when all is settled."""
    spool = open_spool()
    told = kept(*range(1200))
    assert all(spool.put(told[start : start + 7]) for start in range(0, 1200, 7))
    assert spool.pending == 1200
    (*first,) = spool.oldest(500)
    assert first == told[:500]
    assert drained(spool) == [("a-1", counter) for counter in range(1200)]
    assert (spool.pending, spool.dropped_total) == (0, 0)
    spool.close()
    assert [path for path in (tmp_path / "spool").rglob("*") if path.is_file()] == []


def test_nothing_is_made_before_it_is_needed(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    """A training whose daemon answers leaves no folder behind."""
    spool = open_spool()
    assert spool.oldest(500) == []
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_batches_end_where_numbers_do_not_follow(open_spool: Callable[..., Spool]) -> None:
    """A gap in the numbers ends a batch: a batch is numbered by its first."""
    spool = open_spool()
    spool.put(kept(1, 2, 5, 6))
    assert [each.counter for each in spool.oldest(500)] == [1, 2]
    assert drained(spool) == [("a-1", counter) for counter in (1, 2, 5, 6)]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3].split(os.pathsep)
from tests.transport.test_spool import kept
from sentinel.transport.spool import Spool
spool = Spool(Path(sys.argv[1]), attempt=sys.argv[2], sender="rank-0")
spool.put(kept(*range(3), attempt=sys.argv[2]))
spool.put(kept(*range(3, 5), attempt=sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_delivered_by_the_next(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    """Two attempts are killed with kill -9; the third has theirs, in the order of their lives, before its own."""
    for attempt in ("a-9", "a-2"):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "spool"), attempt, os.pathsep.join(sys.path)]
        assert subprocess.run(command, check=False).returncode == -9
    spool = open_spool("a-5")
    spool.put(kept(7, attempt="a-5"))
    assert spool.pending == 11
    before = [(attempt, counter) for attempt in ("a-9", "a-2") for counter in range(5)]
    assert drained(spool) == [*before, ("a-5", 7)]
    spool.close()
    assert not files(tmp_path)


def test_what_a_living_process_keeps_is_its_own(open_spool: Callable[..., Spool]) -> None:
    """Another sender's folder is left alone until it lets go, and then found within a minute."""
    clock = Clock()
    first, second = open_spool("a-1"), open_spool("a-2", clock=clock)
    first.put(kept(1))
    assert second.oldest(500) == []
    first.close()
    clock.now += TRIED_AGAIN_S
    assert drained(second) == [("a-1", 1)]


def test_the_oldest_is_dropped_beyond_the_limit_and_counted(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    """The disk held never passes the limit; what is left is the newest, without a gap."""
    spool = open_spool(limit_bytes=80_000)
    for counter in range(2000):
        spool.put(kept(counter, padding=50))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 80_000
    left = [counter for _, counter in drained(spool)]
    assert left == list(range(2000 - len(left), 2000))
    assert spool.dropped_total == 2000 - len(left)
    assert len(left) > 300


def test_dropping_while_reading_keeps_the_count(open_spool: Callable[..., Spool]) -> None:
    """What is dropped is counted once, also out of a file that is half delivered."""
    spool = open_spool(limit_bytes=80_000)
    delivered = 0
    for counter in range(2000):
        spool.put(kept(counter, padding=50))
        if counter % 100 == 0:
            batch = spool.oldest(10)
            spool.settled(len(batch))
            delivered += len(batch)
    left = [counter for _, counter in drained(spool)]
    assert delivered + spool.dropped_total + len(left) == 2000
    assert left == list(range(left[0], 2000))


@pytest.mark.parametrize("limit_bytes", [1000, 5000])
def test_a_full_disk_is_told_once_and_nothing_is_torn(
    open_spool: Callable[..., Spool], tmp_path: Path, limit_bytes: int
) -> None:
    """A write that does not fit leaves what was kept before; later, with room again, the spool goes on."""
    said: list[str] = []
    clock = Clock()
    spool = open_spool(say=said.append, clock=clock)
    spool.put(kept(*range(3)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        assert not spool.put(kept(*range(3, 100)))
        assert not spool.put(kept(*range(3, 100)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert spool.problem is not None
    (problem,) = said
    assert f"cannot be kept in {tmp_path}/spool, but in memory alone: OSError: " in problem
    assert not spool.put(kept(*range(3, 100)))
    clock.now += TRIED_AGAIN_S
    assert spool.put(kept(*range(3, 100)))
    assert spool.problem is None
    assert [counter for _, counter in drained(spool)] == list(range(100))
    assert (len(said), spool.dropped_total) == (1, 0)


@pytest.mark.parametrize("obstacle", ["a file", "/proc"])
def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path, obstacle: str) -> None:
    """Where nothing can be written the caller keeps what it has; nothing is raised."""
    said: list[str] = []
    clock = Clock()
    folder = Path(obstacle) / "spool" if obstacle == "/proc" else tmp_path / "file" / "spool"
    (tmp_path / "file").write_text("")
    spool = Spool(folder, attempt=AttemptId("a-1"), sender=SENDER, say=said.append, clock=clock)
    for _ in range(3):
        assert not spool.put(kept(1))
        assert spool.oldest(500) == []
        clock.now += TRIED_AGAIN_S
    spool.close()
    assert len(said) == 1
    assert str(folder) in said[0]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 2000), noise=st.binary(max_size=40), cut=st.booleans())
def test_a_corrupt_file_costs_its_lines_and_no_more(
    tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes, *, cut: bool
) -> None:
    """Wherever a file is overwritten or cut, what comes out was put in, in order, and no undamaged line is missing."""
    folder = tmp_path_factory.mktemp("spool")
    dead = Spool(folder / "spool", attempt=AttemptId("a-1"), sender=SENDER)
    dead.put(kept(*range(20)))
    dead.close()
    (path,) = files(folder)
    content = path.read_bytes()
    place %= len(content)
    damaged = content[:place] if cut else content[:place] + noise + content[place + len(noise) :]
    path.write_bytes(damaged)
    spool = Spool(folder / "spool", attempt=AttemptId("a-2"), sender=SENDER)
    found = [counter for _, counter in drained(spool)]
    spool.close()
    whole = set(content.splitlines()) & set(damaged.splitlines())
    assert found == [counter for counter, line in enumerate(content.splitlines()) if line in whole]


def _in_a_child(spool: Spool, answers: multiprocessing.queues.SimpleQueue[object]) -> None:
    answers.put((spool.put(kept(50)), spool.oldest(500)))
    spool.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_does_no_harm(open_spool: Callable[..., Spool]) -> None:
    """A child that inherits the spool writes, reads and removes nothing, whatever it calls."""
    spool = open_spool()
    spool.put(kept(*range(3)))
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(spool, answers))
    child.start()
    child.join(30)
    assert answers.get() == (False, [])
    spool.put(kept(3))
    assert [counter for _, counter in drained(spool)] == list(range(4))


def test_another_releases_line_is_passed_over(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    """A line that this release cannot decode is lost and counted; the others come out."""
    dead = Spool(tmp_path / "spool", attempt=AttemptId("a-1"), sender=SENDER)
    strange = kept(1)[0]
    object.__setattr__(strange, "observation", Heartbeat(at="soon", step=1))  # type: ignore[arg-type]
    dead.put([*kept(0), strange, *kept(2)])
    dead.close()
    spool = open_spool("a-2")
    assert drained(spool) == [("a-1", 0), ("a-1", 2)]
    assert spool.dropped_total == 1
