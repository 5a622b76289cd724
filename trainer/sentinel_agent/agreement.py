"""How all ranks roll back at the same step or none does, without a collective and without a wait in any other step.

Rank 0 proposes a command and a stop step a little ahead of its newest step. Each rank's agent thread finds the proposal
in a small key-value store, *arms* its training thread (which will stop before it goes past the stop step), prepares
everything that can fail, and promises. The decision is one key, set once and never changed:

    rank 0 has seen every promise            -> "commit"
    anybody refuses, or its deadline passes  -> "abort ...", with the reason

Whoever reads it obeys, so there is one outcome for all. Why no rank is left behind: a commit needs the promise of every
rank, a rank promises only when it was armed before its step reached the stop step, and armed it cannot pass that step
without knowing the decision. Arming is a store before a load on both sides (Dekker): the agent's thread arms and then
reads the step, the training's thread writes its step and then looks whether it is armed; one of them sees the other.

A rank that has promised and cannot reach the store does not know what was decided. It must not guess: were it to go on
while the others went back, their gradients would be averaged with those of other weights. The store lives in rank 0's
process, so it is unreachable when that process or the way to it is gone, and then so is the job; the rank stops its
training at the stop step and says so. A rank that has not promised cannot be part of a commit and goes on.

Everything here is pure: what touches the world is yielded as a request, and the answer sent back, so that a test can
order, delay and lose the requests of all ranks as it likes.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Literal

COMMIT: Final = "commit"
ABORT: Final = "abort: "
YES: Final = "yes"
LATE: Final = "it was past the stop step before it heard of it"


class Unreachable(Exception):
    """The store does not answer and will not again: thrown into the machine instead of an answer."""


@dataclass(frozen=True, slots=True)
class Read:
    """The value of a key; answered with "" where there is none."""

    key: str


@dataclass(frozen=True, slots=True)
class Write:
    """Sets a key."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Sets a key if it has no value; answered with the value that stands, whoever set it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Have:
    """Whether all keys have values; answered with a bool."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """From now on the training's thread stops before it goes past the stop step."""


@dataclass(frozen=True, slots=True)
class ReadStep:
    """The newest step that the training's thread has published."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Does everything that can fail; answered with why it did, or ""."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds on a clock of this rank's own that never goes back."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A little time passes."""


Request = Read | Write | Settle | Have | Arm | ReadStep | Prepare | Clock | Pause
Answer = str | bool | int | float | None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a proposal says about the agreement itself."""

    number: int
    """Rises with each proposal of rank 0; the keys of one are never used by another."""
    stop_step: int
    deadline_s: float
    """After so long without a decision each rank may abort, counted from when it heard of the proposal."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an agreement ended for one rank."""

    kind: Literal["commit", "abort", "unknown"]
    reason: str = ""

    @property
    def is_late(self) -> bool:
        """Whether a later stop step may succeed."""
        return self.reason.endswith(LATE)


def take_part(terms: Terms, *, rank: int, ranks: int) -> Generator[Request, Answer, Outcome]:
    """One rank's part in one agreement; rank 0 also counts the promises."""
    began = yield Clock()
    assert isinstance(began, int | float)
    yield Arm()
    step = yield ReadStep()
    assert isinstance(step, int)
    no = LATE if step >= terms.stop_step else (yield Prepare())
    has_promised = False
    try:
        if no:
            verdict = yield Settle(_decision(terms), f"{ABORT}rank {rank}: {no}")
        else:
            has_promised = True  # even if the store does not answer to it: it may have arrived
            yield Write(_promise(terms, rank), YES)
            verdict = yield from _await_decision(terms, began + terms.deadline_s, rank=rank, ranks=ranks)
    except Unreachable as lost:
        return Outcome("unknown" if has_promised else "abort", f"rank {rank} cannot reach rank 0: {lost}")
    if verdict == COMMIT:
        return Outcome("commit")
    return Outcome("abort", str(verdict).removeprefix(ABORT))


def _await_decision(terms: Terms, deadline: float, *, rank: int, ranks: int) -> Generator[Request, Answer, Answer]:
    key = _decision(terms)
    promises = tuple(_promise(terms, each) for each in range(ranks))
    while True:
        verdict = yield Read(key)
        if verdict:
            return verdict
        if rank == 0 and (yield Have(promises)):
            return (yield Settle(key, COMMIT))
        now = yield Clock()
        assert isinstance(now, int | float)
        if now > deadline:
            return (yield Settle(key, f"{ABORT}rank {rank}: not all ranks had promised in {terms.deadline_s:.0f} s"))
        yield Pause()


def _decision(terms: Terms) -> str:
    return f"{terms.number}/decision"


def _promise(terms: Terms, rank: int) -> str:
    return f"{terms.number}/promise/{rank}"
