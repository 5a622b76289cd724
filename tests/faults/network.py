"""A network between trainers and daemon that delays, cuts, repeats and garbles."""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from sentinel import clock

PIECE_BYTES: Final = 16384
PATIENCE_S: Final = 3.0


@dataclass(frozen=True)
class Weather:
    """How likely each mishap is for a piece of traffic, in either direction."""

    delay: float = 0.05
    cut: float = 0.03
    repeat: float = 0.03
    garble: float = 0.03
    longest_delay_s: float = 0.3


class Network:
    """Listens on a port of its own and passes on to the daemon's; a context manager.

    Args:
        port: the daemon's.
        weather: what goes wrong.
        seed: of the mishaps.
    """

    def __init__(self, port: int, weather: Weather, *, seed: int = 0) -> None:
        self.mishaps: Counter[str] = Counter()
        self.port = port
        """Where new connections lead to: to another daemon, when it takes over."""
        self._weather = weather
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
            except OSError:
                near.close()
                continue
            near.settimeout(PATIENCE_S)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, target, source is near), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:  # noqa: FBT001
        said = b""
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                said += piece
                target.sendall(self._pass(piece))
                if is_request and self._happens("repeat", self._weather.repeat):
                    self._repeat(said)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pass(self, piece: bytes) -> bytes:
        """What becomes of a piece.

        Raises:
            ConnectionAbortedError: it is cut.
        """
        if self._happens("delay", self._weather.delay):
            clock.sleep(self._random.uniform(0.0, self._weather.longest_delay_s))
        if self._happens("cut", self._weather.cut):
            raise ConnectionAbortedError
        if self._happens("garble", self._weather.garble):
            place = self._random.randrange(len(piece))
            return piece[:place] + bytes([piece[place] ^ (1 << self._random.randrange(8))]) + piece[place + 1 :]
        return piece

    def _repeat(self, said: bytes) -> None:
        """Sends all that was said on a connection once more, on another."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as again:
            again.sendall(said)
            again.shutdown(socket.SHUT_WR)
            while again.recv(PIECE_BYTES):
                pass

    def _happens(self, mishap: str, probability: float) -> bool:
        happens = self._random.random() < probability
        self.mishaps[mishap] += happens
        return happens
