"""Hands on what the training writes to standard error, and keeps the end of it; a process of its own, run by its path.

It outlives a launcher that is killed: the training then writes on as if nothing had been.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 16 << 10
CHUNK_BYTES: Final = 64 << 10
LAST_WORDS_S: Final = 1.0
"""How long what a dead process wrote may take to come through."""


class Relay:
    """The process, and the pipe into it.

    Args:
        tail: the file that holds the end of what went through.
    """

    def __init__(self, tail: Path) -> None:
        self._tail = tail
        read_end, self.write_end = os.pipe()
        # Opened here: by the time that the relay runs, a short training may be over and its folder gone.
        kept = os.open(tail, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=read_end, stdout=kept, start_new_session=True
        )
        os.close(kept)
        os.close(read_end)

    @property
    def process_id(self) -> int:
        """Of the relay, which is no process of the training."""
        return self._process.pid

    def opened(self) -> None:
        """The training has its end of the pipe; ours would keep it open for ever."""
        os.close(self.write_end)

    def tail(self) -> str:
        """The end of what was written, once the training is dead; the whole lines of it."""
        with suppress(subprocess.TimeoutExpired):  # what the training left behind may hold the pipe open
            self._process.wait(LAST_WORDS_S)
        try:
            text = self._tail.read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""
        text = text.replace("\0", "")
        return text if len(text) < TAIL_BYTES // 2 else text.partition("\n")[2] or text


def relay() -> None:
    """Copies standard input to standard error until it ends; the end of it goes to the file that is standard output."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    kept = b""
    while data := os.read(0, CHUNK_BYTES):
        with suppress(OSError):  # a terminal that is gone is no reason to stop reading
            rest = data
            while rest:
                rest = rest[os.write(2, rest) :]
        kept = (kept + data)[-TAIL_BYTES:]
        with suppress(OSError):
            os.pwrite(1, kept, 0)


if __name__ == "__main__":
    relay()
