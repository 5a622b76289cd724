"""The agent's one thread: brings readings to the daemon and its word back, and verifies checkpoints in between.

It is started before the loaders fork their workers and lives until the training ends: a thread that begins or ends
during a fork can hang CPython 3.11. The training's thread only appends to ``inbox``; it wakes nobody and waits for
nobody, except at the start and the end, with a bound.
"""

from __future__ import annotations

import math
import resource
import threading
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic, time
from typing import Final

import torch

from sentinel.protocol.commands import Reply
from sentinel.protocol.observations import AttemptStarted, CommandResult, Heartbeat, Observation, StepReport
from sentinel.protocol.processes import PhaseChange
from sentinel.transport.sender import PENDING_LIMIT, Sender
from sentinel_agent.fail_open import Guard
from sentinel_agent.rank_tally import RankTally
from sentinel_agent.readings import StepReading, report, work_s

POLL_S: Final = 0.05
"""The longest a reading waits here: a twentieth of the second in which a rollback is to be done."""
WORK_S: Final = 0.02
"""The longest stretch of verification between two looks into the inbox."""
HEARTBEAT_S: Final = 3.0
"""The daemon takes note of a silence of 5 s."""
EXCHANGES_A_TURN: Final = 20
SAID_AGAIN_S: Final = 60.0
"""A daemon that comes and goes is not told of more often."""
LAST_WORD_S: Final = 1.0
"""For the daemon to hear that the agent has turned itself off."""

Work = Generator[None, None, None]
Item = StepReading | Observation | Work


class Courier:
    """Owns the thread and the sender.

    Args:
        device: where the training computes.
        tally: takes each step for the rank's own report.
        guard: takes what goes wrong here.
        on_reply: called in the thread with each of the daemon's answers.
        say: prints a line, and never raises.
        find: of a rank that does not speak for the run: makes the sender, once the run is known. It tells no step, only
            the tally's reports, and no heartbeat.
    """

    def __init__(
        self,
        device: torch.device,
        tally: RankTally,
        *,
        guard: Guard,
        on_reply: Callable[[Reply], None],
        say: Callable[[str], None],
        find: Callable[[], Sender | None] | None = None,
    ) -> None:
        self.inbox: deque[Item] = deque(maxlen=PENDING_LIMIT)
        """What happened and what is to be done, in order; any thread may append."""
        self.first_answer = threading.Event()
        """Set once the daemon has answered for the first time or failed to."""
        self.sender: Sender | None = None
        self.on_step: Callable[[int], object] = lambda _step: None
        """Called in the thread with the newest step, again and again."""
        self.on_off: Callable[[], object] = lambda: None
        """Called in the thread when the agent has turned itself off."""
        self._device = device
        self._tally = tally
        self._find = find
        self._guard = guard
        self._on_reply = on_reply
        self._say = say
        self._work: deque[Work] = deque()
        self._last: Observation | None = None
        self._closing_at: float | None = None
        self._wake = threading.Event()
        self._step = self._segment = 0
        self._told_at = monotonic()
        self._is_heard: bool | None = None
        self._said_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="sentinel-agent", daemon=True)

    def start(self) -> None:
        """Starts the thread; nothing is sent yet."""
        self._thread.start()

    def begin(self, sender: Sender, first: AttemptStarted) -> None:
        """Opens the conversation with ``first``."""
        self._step = first.step
        self.inbox.appendleft(first)  # before any reading of the GPU's
        self.sender = sender
        self._wake.set()

    def close(self, last: Observation | None, *, timeout_s: float) -> None:
        """Ends the conversation with ``last`` and the thread with it; returns in ``timeout_s`` at the latest.

        A daemon that is away is not waited for.
        """
        self._last = last
        self._closing_at = monotonic() + timeout_s
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def offer(self, observation: Observation) -> None:
        """Sends an observation behind those already taken from the inbox. For the agent's thread."""
        if self.sender is not None:
            self.sender.offer(observation)
            self._told_at = monotonic()
        if isinstance(observation, StepReport | CommandResult):
            self._step, self._segment = observation.step, observation.segment

    def _run(self) -> None:
        while self._closing_at is None and not self._guard.off:
            self._wake.wait(POLL_S)
            self._wake.clear()
            with self._guard.watching("the agent's thread"):
                self._turn()
        if self._closing_at is None:
            self.on_off()
        if self.sender is not None:
            self._finish(self.sender)
            self.sender.close()

    def _turn(self) -> None:
        if self.sender is None and self._find is not None:
            self.sender = self._find()
        if self.sender is None:
            return
        self._drain()
        self.on_step(self._step)
        self._do_work(until=monotonic() + WORK_S)
        if (rank := self._tally.due(monotonic())) is not None:
            self.offer(rank)
        if self._find is None and self.sender.problem is None and monotonic() - self._told_at > HEARTBEAT_S:
            self.offer(self._heartbeat(self.sender))
        self._exchange(self.sender)
        self.sender.keep()

    def _finish(self, sender: Sender) -> None:
        """Does and delivers what there is, as long as the daemon answers and there is time."""
        until = self._closing_at or monotonic() + LAST_WORD_S
        with self._guard.watching("the agent's last work"):
            if not self._guard.off:
                self._drain()
            while self._work and not self._guard.off and sender.problem is None and monotonic() < until:
                self._do_work(until=until)
        with self._guard.watching("the agent's last delivery"):
            if (rank := self._tally.rest()) is not None:
                self.offer(rank)
            if self._guard.errors_total or sender.dropped_total:
                self.offer(self._heartbeat(sender))
            if self._guard.off and self._find is None:  # what comes now nobody tells, and it is no hang
                self.offer(PhaseChange(at=time(), phase="done", step=self._step, segment=self._segment))
            if self._last is not None:
                self.offer(self._last)
            while sender.pending and sender.problem is None and monotonic() < until:
                self._exchange(sender)

    def _drain(self) -> None:
        """Takes from the inbox, up to the first step whose scalars are still on their way from the device."""
        peak_memory_bytes = self._peak_memory_bytes() if self.inbox else None
        while self.inbox:
            item = self.inbox.popleft()
            if isinstance(item, Generator):
                self._work.append(item)
            elif isinstance(item, StepReading):
                told = report(item, peak_memory_bytes)
                if told is None:
                    self.inbox.appendleft(item)
                    return
                self._tally.take(told, work_s(item), monotonic())
                if self._find is None:
                    self.offer(told)
            else:
                self.offer(item)

    def _do_work(self, *, until: float) -> None:
        while self._work and monotonic() < until:
            try:
                next(self._work[0])
            except StopIteration:
                self._work.popleft()
            except Exception:
                self._work.popleft()
                raise

    def _exchange(self, sender: Sender) -> None:
        for _ in range(EXCHANGES_A_TURN):
            if not sender.pending or not sender.due:
                return
            reply = sender.exchange()
            sender.keep()
            self._say_change(sender)
            self.first_answer.set()
            if reply is not None:
                self._on_reply(reply)

    def _say_change(self, sender: Sender) -> None:
        """Says that the daemon was lost or found; the first word about it stands in the lines at the start."""
        is_heard = sender.problem is None
        if is_heard == self._is_heard or monotonic() - self._said_at < SAID_AGAIN_S:
            return
        if self._is_heard is not None:
            self._said_at = monotonic()
            kept = f"the daemon is lost ({sender.problem}): telemetry is kept, and every pin"
            self._say("the daemon answers" if is_heard else kept)
        self._is_heard = is_heard

    def _heartbeat(self, sender: Sender) -> Heartbeat:
        return Heartbeat(
            at=time(),
            step=self._step,
            segment=self._segment,
            dropped_total=sender.dropped_total,
            guarded_errors_total=self._guard.errors_total,
        )

    def _peak_memory_bytes(self) -> int:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
