from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sentinel_agent.agreement import (
    COMMIT,
    Arm,
    Clock,
    Have,
    Outcome,
    Pause,
    Prepare,
    Read,
    ReadStep,
    Settle,
    Terms,
    Unreachable,
    Write,
    take_part,
)

DEADLINE_S = 10.0
GIVE_UP_S = 60.0
LAST_STEP = 12


@dataclass
class Peer:
    """One rank: the agent's thread with its part in the agreement, and the training's thread."""

    rank: int
    step: int = 0
    segment: int = 0
    place: str = "boundary"  # of the training's thread: boundary, computing, collective, stopped, done
    armed: Terms | None = None
    waited_s: float = 0.0
    outcome: Outcome | None = None
    machine: Generator[Any, Any, Outcome] | None = None
    request: Any = None
    heard: int = 0
    refuses: str = ""
    is_alive: bool = True
    is_cut_off: bool = False

    @property
    def trains(self) -> bool:
        """Whether its training thread is at work."""
        return self.is_alive and self.place not in ("stopped", "done")


@dataclass
class World:
    """Ranks in the lockstep of their collectives, and the store in rank 0's process."""

    peers: list[Peer]
    clock_s: float = 0.0
    kept: dict[str, str] = field(default_factory=dict)
    proposals: list[Terms] = field(default_factory=list)
    has_mixed: bool = False

    def propose(self, margin: int) -> None:
        """Rank 0 proposes to stop a little ahead."""
        number = len(self.proposals) + 1
        self.proposals.append(Terms(number, self.peers[0].step + margin, DEADLINE_S))

    def can_hear(self, peer: Peer) -> bool:
        """A proposal overwrites the one before; a rank looks for one when it has none under way."""
        is_free = peer.machine is None and peer.armed is None
        return peer.is_alive and is_free and self.reaches(peer) and len(self.proposals) > peer.heard

    def reaches(self, peer: Peer) -> bool:
        """Whether the store answers it."""
        return self.peers[0].is_alive and not peer.is_cut_off

    def hear(self, peer: Peer) -> None:
        """It finds the newest proposal."""
        peer.heard = len(self.proposals)
        peer.machine = take_part(self.proposals[-1], rank=peer.rank, ranks=len(self.peers))
        peer.request = next(peer.machine)

    def agent_turn(self, peer: Peer, *, loses: str = "") -> None:
        """Carries out the pending request of a rank's machine; ``loses`` the request or only its answer."""
        assert peer.machine is not None
        try:
            if isinstance(peer.request, Read | Write | Settle | Have):
                if loses == "request" or not self.reaches(peer):
                    peer.is_cut_off = True
                    peer.request = peer.machine.throw(Unreachable("cut off"))
                    return
                answer = self._store(peer.request)
                if loses == "answer":
                    peer.is_cut_off = True
                    peer.request = peer.machine.throw(Unreachable("cut off"))
                    return
            else:
                answer = self._local(peer, peer.request)
            peer.request = peer.machine.send(answer)
        except StopIteration as end:
            peer.machine, peer.outcome = None, end.value

    def training_turn(self, peer: Peer) -> None:
        """One move of a rank's training thread; may be a wait."""
        if peer.place == "boundary":
            self._pass_boundary(peer)
        elif peer.place == "computing":
            peer.place = "collective"
        elif all(each.is_alive and each.place == "collective" for each in self.peers):
            self.has_mixed |= len({(each.segment, each.step) for each in self.peers}) > 1
            for each in self.peers:
                each.step += 1
                each.place = "boundary" if each.step < LAST_STEP else "done"

    def _pass_boundary(self, peer: Peer) -> None:
        terms = peer.armed
        if terms is None or peer.step < terms.stop_step:
            peer.place = "computing"
        elif peer.outcome is None:
            peer.waited_s += 1
            if peer.waited_s > DEADLINE_S + GIVE_UP_S:
                peer.place = "stopped"
        elif peer.outcome.kind == "unknown":
            peer.place = "stopped"
        else:
            if peer.outcome.kind == "commit":
                peer.segment += 1
                peer.step = 0
            peer.armed = peer.outcome = None
            peer.waited_s = 0.0
            peer.place = "computing"

    def _store(self, request: Any) -> Any:
        match request:
            case Read(key):
                return self.kept.get(key, "")
            case Write(key, value):
                self.kept[key] = value
                return None
            case Settle(key, value):
                return self.kept.setdefault(key, value)
            case Have(keys):
                return all(key in self.kept for key in keys)

    def _local(self, peer: Peer, request: Any) -> Any:
        match request:
            case Arm():
                peer.armed = self.proposals[peer.heard - 1]
                return None
            case ReadStep():
                return peer.step
            case Prepare():
                return peer.refuses
            case Clock():
                return self.clock_s
            case Pause():
                return None


class Agreeing(RuleBasedStateMachine):
    """Every order of events that delays, deaths and lost messages can make."""

    @initialize(ranks=st.integers(2, 4))
    def start(self, ranks: int) -> None:
        """Two to four ranks."""
        self.world = World([Peer(rank) for rank in range(ranks)])
        self.has_fault = False

    def _some(self, data: st.DataObject, condition: Any) -> Peer | None:
        peers = [each for each in self.world.peers if condition(each)]
        return data.draw(st.sampled_from(peers)) if peers else None

    @precondition(lambda self: self.world.peers[0].is_alive and self.world.peers[0].machine is None)
    @precondition(lambda self: self.world.peers[0].armed is None and len(self.world.proposals) < 4)
    @rule(margin=st.integers(1, 3))
    def propose(self, margin: int) -> None:
        """Rank 0 proposes to stop a little ahead."""
        self.world.propose(margin)
        self.world.hear(self.world.peers[0])

    @rule(data=st.data(), turns=st.sampled_from([1, 2, 3, 12]))
    def agent(self, data: st.DataObject, turns: int) -> None:
        """One agent thread gets some way."""
        peer = self._some(data, lambda each: each.is_alive and (each.machine or self.world.can_hear(each)))
        if peer and not peer.machine:
            self.world.hear(peer)
        for _ in range(turns):
            if peer and peer.machine:
                self.world.agent_turn(peer)

    @rule(data=st.data(), turns=st.integers(1, 3))
    def training(self, data: st.DataObject, turns: int) -> None:
        """One training thread gets some way."""
        peer = self._some(data, lambda each: each.trains)
        for _ in range(turns):
            if peer and peer.trains:
                self.world.training_turn(peer)

    @rule(turns=st.integers(1, 4))
    def all_train(self, turns: int) -> None:
        """All training threads do."""
        for _ in range(turns):
            for peer in self.world.peers:
                if peer.trains:
                    self.world.training_turn(peer)

    @rule(seconds=st.sampled_from([0.05, 3.0, DEADLINE_S + 1]))
    def time_passes(self, seconds: float) -> None:
        """Every clock goes on."""
        self.world.clock_s += seconds

    @rule(data=st.data())
    def cannot_prepare(self, data: st.DataObject) -> None:
        """One rank is to refuse."""
        data.draw(st.sampled_from(self.world.peers)).refuses = "the file cannot be read"

    @rule(data=st.data(), loses=st.sampled_from(["request", "answer"]))
    def lose(self, data: st.DataObject, loses: str) -> None:
        """A rank's request or its answer is lost, and with it the connection."""
        peer = self._some(data, lambda each: each.is_alive and each.machine and each.rank)
        if peer and isinstance(peer.request, Read | Write | Settle | Have) and data.draw(st.integers(0, 4)) == 0:
            self.has_fault = True
            self.world.agent_turn(peer, loses=loses)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A rank is killed."""
        peer = self._some(data, lambda each: each.is_alive)
        if peer and data.draw(st.integers(0, 9)) == 0:
            self.has_fault = True
            peer.is_alive = False

    @invariant()
    def half_never_goes_back_alone(self) -> None:
        """No collective joins ranks of which some have gone back and others not."""
        assert not getattr(self, "world", None) or not self.world.has_mixed

    @invariant()
    def one_decision(self) -> None:
        """All that have read the decision of a proposal have read the same."""
        kinds: dict[int, set[str]] = {}
        for peer in getattr(self, "world", World([])).peers:
            if peer.outcome is not None and peer.outcome.kind != "unknown" and peer.armed:
                kinds.setdefault(peer.armed.number, set()).add(peer.outcome.kind)
        assert all(len(each) == 1 for each in kinds.values())

    def teardown(self) -> None:
        """Left to itself, a run without a fault comes to its end, and one with a fault hangs nobody in our code."""
        world = getattr(self, "world", None)
        if world is None:
            return
        for _ in range(2000):
            world.clock_s += 0.05
            for peer in world.peers:
                if not peer.is_alive:
                    continue
                if world.can_hear(peer):
                    world.hear(peer)
                if peer.machine:
                    world.agent_turn(peer)
                if peer.trains:
                    world.training_turn(peer)
        assert not world.has_mixed
        event("faults" if self.has_fault else "no fault")
        event(f"rolled back: {any(peer.segment for peer in world.peers)}")
        if not self.has_fault:
            assert [peer.place for peer in world.peers] == ["done"] * len(world.peers)
            assert len({peer.segment for peer in world.peers}) == 1
        for peer in world.peers:
            assert not peer.is_alive or peer.place in ("done", "stopped", "collective")
            assert peer.place != "stopped" or self.has_fault


def explore(runs: int) -> None:
    """Tries so many random orders of events."""
    run_state_machine_as_test(
        Agreeing,
        settings=settings(
            max_examples=runs, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_no_order_of_events_splits_or_hangs_the_ranks() -> None:
    """In 100 runs of delays, deaths and losses half of the ranks never go back alone and no healthy run hangs."""
    explore(100)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_order_of_events_splits_or_hangs_the_ranks_at_length() -> None:
    """The same in 1,000 runs."""
    explore(1000)


def settled(world: World, *, turns: int = 400) -> list[Outcome | None]:
    """Runs a world without faults; returns each rank's first outcome."""
    seen: list[Outcome | None] = [None] * len(world.peers)
    world.hear(world.peers[0])
    for _ in range(turns):
        world.clock_s += 0.05
        for peer in world.peers:
            if world.can_hear(peer):
                world.hear(peer)
            if peer.machine:
                world.agent_turn(peer)
                seen[peer.rank] = seen[peer.rank] or peer.outcome
    return seen


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_that_can_all_go_back_agree_to(ranks: int) -> None:
    """With nothing in the way the outcome is a commit on every rank."""
    world = World([Peer(rank) for rank in range(ranks)])
    world.propose(2)
    assert settled(world) == [Outcome("commit")] * ranks
    assert world.kept["1/decision"] == COMMIT


def test_reason_of_the_rank_that_cannot_reaches_all() -> None:
    """One rank's refusal aborts for all, at once and with its reason."""
    world = World([Peer(0), Peer(1), Peer(2, refuses="it has no sidecar")])
    world.propose(2)
    assert settled(world, turns=20) == [Outcome("abort", "rank 2: it has no sidecar")] * 3


def test_rank_that_is_late_may_be_asked_again() -> None:
    """A rank past the stop step refuses, and the outcome says that a later step may do."""
    world = World([Peer(0), Peer(1, step=2)])
    world.propose(2)
    outcomes = settled(world)
    assert [each and each.kind for each in outcomes] == ["abort", "abort"]
    assert all(each and each.is_late for each in outcomes)


def test_silent_rank_is_waited_for_until_the_deadline() -> None:
    """A rank that never answers aborts the agreement after its deadline, and the reason says so."""
    world = World([Peer(0), Peer(1)])
    world.peers[1].is_alive = False
    world.propose(2)
    (first, silent) = settled(world)
    assert first == Outcome("abort", "rank 0: not all ranks had promised in 10 s")
    assert silent is None
