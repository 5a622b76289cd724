"""A rank's link to the other ranks: a store in rank 0's process, and a thread that carries out ``agreement`` over it.

The store is the agent's own (a TCPStore beside the one of ``torch.distributed``, and trusted as that one is); its
address is passed on through the default store once, at the start. A look into it takes 6 us on one machine and stays
off the training's thread.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import count
from math import ceil
from time import monotonic
from typing import Any, Final, TypeVar

import torch.distributed as dist

from sentinel.protocol.codec import to_tree
from sentinel.protocol.commands import RollBack
from sentinel_agent import agreement
from sentinel_agent.agreement import Outcome, Terms, Unreachable
from sentinel_agent.checkpoints import Checkpoint
from sentinel_agent.fail_open import Guard, HalfRestored
from sentinel_agent.rollback import Prepared

TCPStore: Final[Any] = getattr(dist, "TCPStore")  # noqa: B009 - torch's stubs do not export it

POLL_S: Final = 0.05
AGREEING_POLL_S: Final = 0.005
"""While an agreement is under way each of these delays is one of the training's."""
LATENCY_S: Final = 0.25
"""In which every rank hears of a proposal: five polls."""
SPARE_STEPS: Final = 2
TRIES: Final = 3
"""Each with twice the margin of the one before."""
DEADLINE_S: Final = 15.0
READING_BYTES_PER_S: Final = 50e6
"""Every rank reads the file twice, for its digest and into memory, at half the speed of a 1 Gbit/s link."""
GIVE_UP_S: Final = 60.0
"""The longest a rank waits at the stop step for a store that does not answer, once the deadline has passed."""
MEET_S: Final = 10.0
VERDICTS_S: Final = 10.0
Told = TypeVar("Told")
_meetings = count()
_kept: list[Any] = []
"""Rank 0's stores live as long as its process: the others may look a last time after its training has ended."""


class Undecided(HalfRestored):
    """This rank has promised to go back and cannot learn whether the others do, so its training must end."""


@dataclass(slots=True)
class Appointment:
    """A stop step at which this rank's training waits for the decision."""

    terms: Terms
    command: RollBack
    prepared: Prepared | None = None
    outcome: Outcome | None = None
    decided: threading.Event = field(default_factory=threading.Event)

    def is_agreed(self) -> bool:
        """Waits for the decision; whether it is to go back.

        Raises:
            Undecided: it cannot be known.
        """
        self.decided.wait(self.terms.deadline_s + GIVE_UP_S)
        outcome = self.outcome
        if outcome is None or outcome.kind == "unknown":
            reason = "no decision was made" if outcome is None else outcome.reason
            raise Undecided(
                f"the ranks were about to roll back to step {self.command.step} together and this one cannot learn "
                f"whether they do ({reason}), so it stops: start again with trainer.fit(..., ckpt_path=...)"
            )
        return outcome.kind == "commit"


class Peers:
    """One rank among the others.

    Args:
        rank: this one.
        ranks: how many there are.
        store: the agents' own.
        guard: takes what goes wrong in the thread.
    """

    def __init__(self, rank: int, ranks: int, store: Any, guard: Guard) -> None:
        self.rank = rank
        self.ranks = ranks
        self.step: Callable[[], int] = int
        self.prepare: Callable[[RollBack, Checkpoint], Prepared] | None = None
        """Raises if it cannot; the message goes to all ranks."""
        self.arm: Callable[[Appointment], None] | None = None
        self.refused: Callable[[RollBack, str], None] = lambda _command, _reason: None
        """Rank 0's: the ranks did not agree."""
        self._store = store
        self._guard = guard
        self._wanted: deque[tuple[RollBack, Checkpoint]] = deque()
        self._appointment: Appointment | None = None
        self._number = 0
        self._pace: deque[tuple[float, int]] = deque(maxlen=int(1 / POLL_S))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sentinel-peers", daemon=True)

    def start(self) -> None:
        """Starts the thread: to be called before the loaders fork their workers."""
        self._store.set(f"hello/{self.rank}", "1")
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, without waiting long."""
        self._closing.set()
        self._thread.join(2 * POLL_S)

    def publish(self, facts: Mapping[str, str]) -> None:
        """Rank 0 tells what the others must know of the run."""
        self._store.set("run", json.dumps(facts))

    def facts(self) -> Mapping[str, str]:
        """What rank 0 has told; empty before."""
        text = self._read("run")
        return json.loads(text) if text else {}

    def absent(self) -> list[int]:
        """Ranks without an agent."""
        return [each for each in range(self.ranks) if not self._store.check([f"hello/{each}"])]

    def propose(self, command: RollBack, checkpoint: Checkpoint) -> None:
        """Has the thread of rank 0 seek agreement on a command."""
        self._wanted.append((command, checkpoint))

    def kept(self) -> None:
        """The training's thread has left the stop step behind: there may be another appointment."""
        self._appointment = None

    def verdicts(self, terms: Terms, own: str) -> str:
        """After a rollback: tells what this rank found wrong ("" for nothing); for rank 0, what all did.

        Rank 0 waits for the others, as it would in the next step's collective.
        """
        keys = [f"{terms.number}/arrived/{each}" for each in range(self.ranks)]
        try:
            self._store.set(keys[self.rank], own or "-")
            if self.rank:
                return own
            self._store.wait(keys, timedelta(seconds=VERDICTS_S))
            found = [value.decode() for value in self._store.multi_get(keys)]
        except RuntimeError as error:
            return own or f"not all ranks have said that they arrived: {str(error).splitlines()[0]}"
        return "; ".join(f"rank {rank}: {each}" for rank, each in enumerate(found) if each != "-")

    def _run(self) -> None:
        while not self._closing.wait(POLL_S) and not self._guard.off:
            with self._guard.watching("the agreement's thread"):
                try:
                    self._turn()
                except Unreachable:
                    return  # with rank 0 the job is gone; what was promised is settled by then

    def _turn(self) -> None:
        self._pace.append((monotonic(), self.step()))
        if self._appointment is not None:
            return
        if self._wanted:
            self._seek(*self._wanted.popleft())
        elif self.rank and (text := self._read("proposal")):
            proposal = json.loads(text)
            terms = Terms(**proposal["terms"])
            if terms.number > self._number:
                command = RollBack(**{name: item for name, item in proposal["command"].items() if name != "kind"})
                self._agree(terms, command, Checkpoint(**proposal["checkpoint"]))

    def _seek(self, command: RollBack, checkpoint: Checkpoint) -> None:
        """Rank 0 proposes, again with more margin if a rank was late."""
        outcome = Outcome("abort", "never proposed")
        margin = SPARE_STEPS + ceil(self._steps_per_s() * LATENCY_S)
        if absent := self.absent():
            self.refused(command, f"rank {absent[0]} has no agent")
            return
        for _ in range(TRIES):
            stop_step = self.step() + margin
            if stop_step > command.expires_step:
                outcome = Outcome("abort", f"no step before {command.expires_step} is left to stop at")
                break
            deadline_s = DEADLINE_S + (checkpoint.size_bytes or 0) / READING_BYTES_PER_S
            terms = Terms(self._number + 1, stop_step, deadline_s)
            proposal = {"terms": asdict(terms), "command": to_tree(command), "checkpoint": asdict(checkpoint)}
            self._store.set("proposal", json.dumps(proposal))
            outcome = self._agree(terms, command, checkpoint)
            if outcome.kind != "abort" or not outcome.is_late:
                break
            margin *= 2
            while self._appointment is not None and not self._closing.wait(AGREEING_POLL_S):
                pass  # the training's thread reads the decision and goes on
        if outcome.kind == "abort":
            self.refused(command, outcome.reason)

    def _agree(self, terms: Terms, command: RollBack, checkpoint: Checkpoint) -> Outcome:
        self._number = terms.number
        appointment = self._appointment = Appointment(terms, command)
        machine = agreement.take_part(terms, rank=self.rank, ranks=self.ranks)
        answer: agreement.Answer = None
        try:
            while True:
                request = machine.send(answer)
                try:
                    answer = self._carry_out(request, appointment, checkpoint)
                except Unreachable as lost:
                    machine.throw(lost)
        except StopIteration as end:
            appointment.outcome = end.value
        finally:
            appointment.decided.set()
        assert appointment.outcome is not None
        return appointment.outcome

    def _carry_out(
        self, request: agreement.Request, appointment: Appointment, checkpoint: Checkpoint
    ) -> agreement.Answer:
        match request:
            case agreement.Read() | agreement.Write() | agreement.Settle() | agreement.Have():
                return self._ask(lambda: self._look(request))
            case agreement.Arm():
                assert self.arm is not None
                self.arm(appointment)
            case agreement.ReadStep():
                return self.step()
            case agreement.Prepare():
                return self._try_to_prepare(appointment, checkpoint)
            case agreement.Clock():
                return monotonic()
            case agreement.Pause():
                if self._closing.wait(AGREEING_POLL_S):
                    raise Unreachable("the training has ended")
        return None

    def _look(self, request: agreement.Request) -> agreement.Answer:
        match request:
            case agreement.Read(key):
                return self._read(key)
            case agreement.Write(key, value):
                self._store.set(key, value)
            case agreement.Settle(key, value):
                return str(self._store.compare_set(key, "", value).decode())
            case agreement.Have(keys):
                return bool(self._store.check(list(keys)))
        return None

    def _try_to_prepare(self, appointment: Appointment, checkpoint: Checkpoint) -> str:
        assert self.prepare is not None
        try:
            appointment.prepared = self.prepare(appointment.command, checkpoint)
        except Exception as error:  # noqa: BLE001 - whatever it is, all ranks must hear that this one cannot
            return f"{error}" or type(error).__name__
        return ""

    def _read(self, key: str) -> str:
        return self._ask(lambda: str(self._store.get(key).decode()) if self._store.check([key]) else "")

    @staticmethod
    def _ask(ask: Callable[[], Told]) -> Told:
        try:
            return ask()
        except RuntimeError as error:  # torch's DistError
            raise Unreachable(str(error).splitlines()[0]) from error

    def _steps_per_s(self) -> float:
        (first_at, first), (last_at, last) = self._pace[0], self._pace[-1]
        return max(0.0, (last - first) / (last_at - first_at)) if last_at > first_at else 0.0


def meet(rank: int, ranks: int, guard: Guard) -> Peers:
    """Finds the other ranks; every rank's n-th call meets the others' n-th.

    Raises:
        RuntimeError: there is no process group, or rank 0 offers no store.
    """
    common = dist.distributed_c10d._get_default_store()
    key = f"sentinel/{next(_meetings)}"
    options: dict[str, Any] = {"wait_for_workers": False, "timeout": timedelta(seconds=MEET_S)}
    if rank == 0:
        host = os.environ.get("MASTER_ADDR") or socket.gethostname()
        store = TCPStore(host, 0, None, True, **options)
        _kept.append(store)
        common.set(key, json.dumps([host, store.port]))
    else:
        common.wait([key], timedelta(seconds=MEET_S))
        host, port = json.loads(common.get(key))
        store = TCPStore(host, port, None, False, **options)
    return Peers(rank, ranks, store, guard)
