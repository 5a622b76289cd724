"""Keeps on disk what no daemon takes, until one does; beyond a limit the oldest is dropped and counted.

Each sender of an attempt has a folder of its own, with files of lines: a checksum, the observation's number, the
monotonic time at which it was told, its JSON. What an attempt leaves behind when it dies is taken over by the next that
needs the same spool, and delivered under the numbers that it has: once in effect, by attempt, sender and number.

Lines are handed to the operating system and never synced: they survive the death of the process, and a loss of power
costs what the system had not written yet, some 30 s on Linux. Whatever goes wrong with the disk is told once; the
sender then keeps what it has in memory.
"""

from __future__ import annotations

import fcntl
import math
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

from sentinel.protocol import codec
from sentinel.protocol.ids import AttemptId, SenderId, is_name
from sentinel.protocol.observations import Observation

LIMIT_BYTES: Final = 256 << 20
"""About 800,000 step reports of 320 bytes: a day at ten steps a second."""
FILE_BYTES: Final = 1 << 20
"""What is read, delivered and removed at a time; of a smaller limit an eighth."""
TRIED_AGAIN_S: Final = 60.0
"""A disk that was full may have room by then, and the last process of an attempt that was killed is gone."""
_LOCK: Final = "lock"
_LINES: Final = ".lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An observation that waits, with the number that it has for good."""

    attempt: AttemptId
    sender: SenderId
    counter: int
    offered_at: float
    """Monotonic seconds of the process that told it."""
    observation: Observation


@dataclass(slots=True)
class _File:
    path: Path
    size_bytes: int
    count: int


class Spool:
    """One sender's spool; nothing is made on disk before there is something to keep.

    All calls come from one thread. In a forked child, such as a loader's worker, nothing happens.

    Args:
        folder: shared by the attempts of a run and their senders.
        attempt: whose observations are kept.
        sender: whose observations are kept.
        limit_bytes: of all that this sender keeps, what it took over from others included.
        say: told, once, why the disk cannot be used.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        attempt: AttemptId,
        sender: SenderId,
        limit_bytes: int = LIMIT_BYTES,
        say: Callable[[str], object] = lambda _problem: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self._own = folder / attempt / sender
        self._limit_bytes = limit_bytes
        self._file_bytes = min(FILE_BYTES, limit_bytes // 8)
        self._say = say
        self._clock = clock
        self._process = os.getpid()
        self._files: deque[_File] = deque()
        self._reading: deque[Kept] = deque()
        """What is left of the oldest file, once it is read."""
        self._output: int | None = None
        self._made = 0
        self._locks: dict[Path, int] = {}
        self._look_at = self._try_at = -math.inf
        self._has_said = False
        self.dropped_total = 0
        """Observations lost on disk: beyond the limit, or in lines that cannot be read."""
        self.problem: str | None = None
        """Why the disk cannot be used now."""

    @property
    def pending(self) -> int:
        """Observations on disk."""
        return sum(file.count for file in self._files)

    def put(self, kept: Sequence[Kept]) -> bool:
        """Keeps what the sender has told, behind all that is kept; returns whether that could be done."""
        if os.getpid() != self._process or self._clock() < self._try_at:
            return False
        self._take_over()
        data = b"".join(map(_line, kept))
        try:
            self._write(data, len(kept))
        except OSError as error:
            self._fail(error)
            return False
        self.problem = None
        while sum(file.size_bytes for file in self._files) > self._limit_bytes:
            self.dropped_total += self._files[0].count
            self._drop_file()
        return True

    def oldest(self, limit: int) -> list[Kept]:
        """The oldest observations of one sender whose numbers follow each other; empty if nothing is kept."""
        if os.getpid() != self._process:
            return []
        self._take_over()
        while self._files and not self._reading:
            self._read()
        batch = list(islice(self._reading, 1))
        for each in islice(self._reading, 1, limit):
            last = batch[-1]
            if (each.attempt, each.sender, each.counter) != (last.attempt, last.sender, last.counter + 1):
                break
            batch.append(each)
        return batch

    def settled(self, count: int) -> None:
        """The oldest ``count`` observations need not be kept any more."""
        for _ in range(count):
            self._reading.popleft()
        self._files[0].count -= count
        if not self._reading:
            self._drop_file()

    def close(self) -> None:
        """Lets go of the folders; what is in them waits for the next attempt."""
        if os.getpid() != self._process:
            return
        self._close_output()
        for folder, lock in self._locks.items():
            _remove_if_empty(folder)
            os.close(lock)
        self._locks.clear()

    def _write(self, data: bytes, count: int) -> None:
        if self._output is not None and self._files[-1].size_bytes >= self._file_bytes:
            self._close_output()
        if self._output is None:
            self._own.mkdir(parents=True, exist_ok=True)
            if self._own not in self._locks:
                self._lock(self._own)
            self._made += 1
            path = self._own / f"{self._made:06d}{_LINES}"
            self._output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            self._files.append(_File(path, 0, 0))
        file = self._files[-1]
        # Not buffered: a forked child that ends would write a copy of the buffer.
        if os.write(self._output, data) != len(data):
            raise OSError("the disk is full")
        file.size_bytes += len(data)
        file.count += count

    def _fail(self, error: OSError) -> None:
        if self._output is not None:
            with suppress(OSError):
                os.ftruncate(self._output, self._files[-1].size_bytes)
        self._close_output()
        self._try_at = self._clock() + TRIED_AGAIN_S
        self.problem = f"{type(error).__name__}: {error}"
        if not self._has_said:
            self._has_said = True
            self._say(
                f"what the daemon does not take cannot be kept in {self.folder}, but in memory alone: {self.problem}"
            )

    def _close_output(self) -> None:
        if self._output is not None:
            with suppress(OSError):  # a network file system may tell only now that it is full
                os.close(self._output)
            self._output = None

    def _read(self) -> None:
        """Reads the oldest file; lines that cannot be read are lost, and a file that cannot be."""
        file = self._files[0]
        if len(self._files) == 1:
            self._close_output()
        names = AttemptId(file.path.parent.parent.name), SenderId(file.path.parent.name)
        try:
            content = file.path.read_bytes()
        except OSError as error:
            content = b""
            self._fail(error)
        for line in content.splitlines():
            kept = _parsed(line, *names)
            if kept is not None:
                self._reading.append(kept)
        self.dropped_total += max(0, file.count - len(self._reading))
        file.count = len(self._reading)
        if not self._reading:
            self._drop_file()

    def _drop_file(self) -> None:
        """Removes the oldest file."""
        if len(self._files) == 1:
            self._close_output()
        file = self._files.popleft()
        self._reading.clear()
        with suppress(OSError):
            file.path.unlink()
        if file.path.parent != self._own and all(each.path.parent != file.path.parent for each in self._files):
            lock = self._locks.pop(file.path.parent, None)
            _remove_if_empty(file.path.parent)
            if lock is not None:
                os.close(lock)

    def _take_over(self) -> None:
        """Puts before all else what attempts that are dead have left, in the order in which they began to keep it."""
        if self._reading or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + TRIED_AGAIN_S
        left: list[tuple[int, list[_File]]] = []
        for lock in self.folder.glob(f"*/*/{_LOCK}"):
            with suppress(OSError):  # another attempt takes it over at this moment
                began = lock.stat().st_mtime_ns
                if lock.parent not in self._locks and is_name(lock.parent.name) and self._lock(lock.parent):
                    left.append((began, list(_files_of(lock.parent))))
        for _, files in sorted(left, key=itemgetter(0), reverse=True):
            self._files.extendleft(reversed(files))

    def _lock(self, folder: Path) -> bool:
        """Makes a folder this process's, as long as it lives."""
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another has it; or this file system has no locks, and then nothing is taken over
            if folder != self._own:
                os.close(lock)
                return False
        self._locks[folder] = lock
        return True


def _files_of(folder: Path) -> Iterator[_File]:
    for path in sorted(folder.glob(f"*{_LINES}")):
        content = path.read_bytes()
        yield _File(path, len(content), content.count(b"\n"))


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.glob(f"*{_LINES}")):
        with suppress(OSError):
            (folder / _LOCK).unlink()
            folder.rmdir()
            folder.parent.rmdir()


def _line(kept: Kept) -> bytes:
    text = f"{kept.counter} {kept.offered_at!r} {codec.dumps(kept.observation)}".encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes, attempt: AttemptId, sender: SenderId) -> Kept | None:
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    counter, offered_at, observation = text.split(b" ", 2)
    try:
        known = codec.decode_observation(codec.parse(observation))
    except codec.DecodeError:  # another release's
        return None
    return Kept(attempt=attempt, sender=sender, counter=int(counter), offered_at=float(offered_at), observation=known)
