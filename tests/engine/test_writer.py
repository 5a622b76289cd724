from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from sentinel import clock
from sentinel.domain.errors import StoreUnavailable
from sentinel.engine.streams import SNAPSHOT_EVERY, Advanced, Stream
from sentinel.engine.writer import Writer
from sentinel.pipeline.pipeline import VERSION
from sentinel.protocol.codec import dumps
from sentinel.protocol.commands import Reply
from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import (
    AttemptEnded,
    Heartbeat,
    Observation,
    ObservationBatch,
    OperatorRequest,
    PipelineStarted,
    PolicyChanged,
    StepReport,
    Tick,
    UnknownObservation,
)
from sentinel.store import observation_log, snapshots
from sentinel.store.session import Connection
from tests.builders import DEFAULT_POLICY, RUN
from tests.daemons import Speaker, Voice, writing

pytestmark = pytest.mark.usefixtures("every_store")


def log_of(writer: Writer, run: RunId = RUN) -> list[Any]:
    """The observations in a run's log."""
    return [
        each.entry.observation
        for each in writer.write(lambda connection: list(observation_log.read(connection, run))).result(timeout=30)
    ]


def state_of(writer: Writer, run: RunId = RUN) -> str:
    """All that a run's pipeline remembers, as text, but for its blindness, which every start of a daemon brings."""
    seen: list[dict[str, Any]] = []
    writer.tell(run, lambda stream: seen.append(stream.pipeline.snapshot())).result(timeout=30)
    del seen[0]["run"]["run"]["blind"], seen[0]["detector.hang"]["blind"]
    return dumps(seen[0])


def test_a_log_begins_with_who_decides(tmp_path: Path) -> None:
    """The first entries of a run name the pipeline and the policy; sequences rise by one from 1."""
    with writing(tmp_path) as writer:
        Voice(writer).start()
        started, policy, attempt = log_of(writer)
        assert started == PipelineStarted(at=started.at, version=VERSION)
        assert policy == PolicyChanged(at=policy.at, policy=DEFAULT_POLICY)
        assert attempt.kind == "attempt_started"
        entries = writer.write(lambda connection: list(observation_log.read(connection, RUN))).result()
        assert [each.entry.sequence for each in entries] == [1, 2, 3]


def test_what_is_sent_twice_is_taken_once(tmp_path: Path) -> None:
    """A batch that comes again, whole or overlapping, also after a restart, adds only what is new."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        batch = voice.batch(voice.reports(10))
        assert voice.send(batch).accepted == 10
        assert (voice.send(batch).accepted, voice.send(batch).duplicates) == (0, 10)
    with writing(tmp_path) as writer:
        again = Voice(writer)
        overlapping = replace(batch, observations=(*batch.observations[5:], *voice.reports(5)), first_counter=5)
        reply = again.send(overlapping)
        assert (reply.accepted, reply.duplicates) == (5, 5)
        steps = [each.step for each in log_of(writer) if isinstance(each, StepReport)]
        assert steps == list(range(1, 16))


def test_a_gap_in_the_numbers_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """A sender whose buffer overflowed goes on with a higher number: what came is taken, what comes late is not."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.train(5)
        voice.counter = 50
        assert voice.train(5).accepted == 5
        voice.counter = 20
        assert voice.train(5).duplicates == 5


def test_the_reply_to_the_nan_carries_the_rollback_until_it_is_answered(tmp_path: Path) -> None:
    """The batch that shows the fault is answered with the order, every later one too, and none after the answer."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        first = voice.break_down()
        (command,) = first.commands
        assert (command.checkpoint, command.step) == ("good", 20)
        assert voice.tell(Heartbeat(at=0.0, step=81)).commands == (command,)
        assert voice.roll_back(command.id, 20).commands == ()
        assert voice.train(1).commands == ()


def test_a_backlog_is_never_answered_with_a_command(tmp_path: Path) -> None:
    """History that shows a fault is recorded and judged; the order comes with the next report from the live edge."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        (report,) = voice.reports(1, loss=float("nan"), grad_norm=float("nan"))
        assert voice.tell(report, backlog=True).commands == ()
        assert [command.step for command in voice.break_down().commands] == [20]


@pytest.mark.parametrize("steps", [300, SNAPSHOT_EVERY + 200])
def test_a_restart_brings_the_same_state_back(tmp_path: Path, steps: int) -> None:
    """After a restart a run's pipeline remembers what it did before, refolded from the log or from a snapshot on."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        (command,) = voice.break_down().commands
        voice.roll_back(command.id, 20)
        for _ in range(steps // 100):
            voice.train(100)
        before = state_of(writer)
        snapshot = writer.write(lambda c: snapshots.newest(c, RUN, VERSION)).result()
        assert (snapshot > 0) is (steps > SNAPSHOT_EVERY)
    with writing(tmp_path) as writer:
        assert state_of(writer) == before
        assert isinstance(log_of(writer)[-1], PipelineStarted)


def test_a_restart_under_another_policy_says_so_in_the_log(tmp_path: Path) -> None:
    """The new policy stands in the log before anything that it decides; the same one is not told again."""
    with writing(tmp_path) as writer:
        Voice(writer).start()
    with writing(tmp_path, policy='mode = "observe"\n') as writer:
        Voice(writer, attempt="attempt-2").start()
        assert [each.kind for each in log_of(writer)[3:]] == ["pipeline_started", "policy_changed", "attempt_started"]


def full_disk(writer: Writer) -> Callable[[], None]:
    """Lets the database grow no further; returns what gives it room again."""

    def set_pages(connection: Connection, number: int) -> None:
        connection.execute(text(f"PRAGMA max_page_count = {number}"))

    pages = writer.write(lambda connection: connection.execute(text("PRAGMA page_count")).scalar_one()).result()
    writer.write(lambda connection: set_pages(connection, pages)).result()
    return lambda: writer.write(lambda connection: set_pages(connection, 1_000_000)).result()


@pytest.mark.parametrize("every_store", ["sqlite"], indirect=True)
def test_a_full_disk_refuses_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """While the disk is full a batch is refused whole; sent again after, it is in the log once, and so is its fault."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        before = state_of(writer)
        more_room = full_disk(writer)
        batch = voice.batch([*voice.reports(400), *voice.reports(1, loss=float("nan"), grad_norm=float("nan"))])
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="disk is full"):
                voice.send(batch)
        more_room()
        assert state_of(writer) == before
        reply = voice.send(batch)
        assert (reply.accepted, reply.duplicates, len(reply.commands)) == (401, 0, 1)
        steps = [each.step for each in log_of(writer) if isinstance(each, StepReport)]
        assert steps == list(range(1, 482))
        assert writer.alive


def test_one_job_that_fails_does_not_take_the_others_along(tmp_path: Path) -> None:
    """Of jobs that share a transaction only the one with the bug fails; the others are done once."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        gate, entered = threading.Event(), threading.Event()

        def occupy(_connection: Connection) -> None:
            entered.set()
            gate.wait(timeout=30)

        def break_it(_stream: Stream) -> OperatorRequest:
            raise ZeroDivisionError("a bug")

        writer.write(occupy)
        entered.wait(timeout=30)
        batch = voice.batch(voice.reports(5))
        good = writer.ingest(batch, [dumps(each) for each in batch.observations], received_at=1.0)
        bad = writer.tell(RUN, break_it)
        told = writer.tell(RUN, lambda _stream: OperatorRequest(at=0.0, request="hold", by="me"))
        gate.set()
        assert good.result(timeout=30).accepted == 5
        with pytest.raises(ZeroDivisionError):
            bad.result(timeout=30)
        assert told.result(timeout=30)
        assert [each.kind for each in log_of(writer) if isinstance(each, StepReport | OperatorRequest)] == [
            *["step"] * 5,
            "operator_request",
        ]


class Raising:
    """A witness with a bug, that remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def committed(self, stream: Stream, advanced: Sequence[Advanced]) -> None:
        """Notes the kinds and fails."""
        self.shown += [each.stored.entry.observation.kind for each in advanced]
        raise ZeroDivisionError(stream.run)


def test_a_witness_that_raises_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Witnesses see every durable entry once, in order; one with a bug is logged, and the sender is answered."""
    witness = Raising()
    with writing(tmp_path, witnesses=[witness]) as writer:
        voice = Voice(writer)
        voice.start()
        assert voice.train(2).accepted == 2
    assert witness.shown == ["pipeline_started", "policy_changed", "attempt_started", "step", "step"]
    assert "a witness of the commits of run run-1 failed" in caplog.text


def test_a_caller_that_goes_away_cannot_stop_the_writer(tmp_path: Path) -> None:
    """A future that somebody tries to cancel is done all the same."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        batch = voice.batch(voice.reports(1))
        future = writer.ingest(batch, [dumps(each) for each in batch.observations], received_at=1.0)
        assert not future.cancel()
        assert future.result(timeout=30).accepted == 1
        assert writer.alive


def test_what_waits_at_the_end_is_done_and_what_comes_after_is_refused(tmp_path: Path) -> None:
    """Stopping finishes every job that was taken; later ones are told so at once instead of waiting for ever."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        futures = []
        for _ in range(200):
            batch = voice.batch(voice.reports(1))
            futures.append(writer.ingest(batch, [dumps(each) for each in batch.observations], received_at=1.0))
            voice.counter += 1
        writer.stop()
        assert sum(future.result(timeout=0).accepted for future in futures) == 200
        assert not writer.alive
        with pytest.raises(StoreUnavailable, match="the daemon is ending"):
            writer.write(lambda _connection: None)


def test_the_clock_of_a_log_never_goes_back(tmp_path: Path) -> None:
    """A daemon's clock that is set back leaves received_at where it was."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)

        def send(received_at: float) -> None:
            batch: ObservationBatch = voice.batch(voice.reports(1))
            taken = writer.ingest(batch, [dumps(each) for each in batch.observations], received_at=received_at)
            reply: Reply = taken.result(timeout=30)
            voice.counter += reply.accepted

        for received_at in (clock.now() + 100, 1.0, clock.now() + 200):
            send(received_at)
        entries = writer.write(lambda connection: list(observation_log.read(connection, RUN))).result()
        times = [each.entry.received_at for each in entries]
        assert times == sorted(times)
        assert len(set(times[-3:])) == 2


def test_the_clock_of_a_log_goes_on_from_a_snapshot_that_nothing_follows(tmp_path: Path) -> None:
    """A restart right at a snapshot does not forget how late it was: received_at goes on from there."""
    later = clock.now() + 1000
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        batch = voice.batch(voice.reports(SNAPSHOT_EVERY))
        writer.ingest(batch, [dumps(each) for each in batch.observations], received_at=later).result(timeout=30)
    with writing(tmp_path) as writer:
        writer.tell(RUN, lambda _stream: None).result(timeout=30)
        entries = writer.write(lambda connection: list(observation_log.read(connection, RUN))).result()
    assert {each.entry.received_at for each in entries[-SNAPSHOT_EVERY:]} == {later}


def test_a_payload_that_cannot_be_read_does_not_stop_its_run(tmp_path: Path) -> None:
    """An entry that another release wrote so that this one cannot read it is kept as unknown, and the run goes on."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.start()
        batch = voice.batch(voice.reports(1))
        payload = '{"kind":"step","at":"in words"}'
        writer.ingest(batch, [payload], received_at=clock.now()).result(timeout=30)
        voice.counter += 1
    with writing(tmp_path) as writer:
        assert Voice(writer, attempt="attempt-2").start().accepted == 1
        assert UnknownObservation in [type(each) for each in log_of(writer)]


def test_ticks_go_to_silent_runs_that_train(tmp_path: Path) -> None:
    """A tick is told to each run that trains and is silent, until it counts as silent; a finished run gets none."""
    with writing(tmp_path) as writer:
        training, finished = Voice(writer, "training"), Voice(writer, "finished")
        for voice in (training, finished):
            voice.start()
            voice.train(1)
        finished.tell(AttemptEnded(at=0.0, outcome="finished", step=1))
        assert writer.tick(silent_s=3600.0).result(timeout=30) == 0
        assert writer.tick(silent_s=0.0).result(timeout=30) == 1
        (tick,) = (each for each in log_of(writer, RunId("training")) if isinstance(each, Tick))
        assert 0.0 <= tick.silent_s < 30.0
        assert not [each for each in log_of(writer, RunId("finished")) if isinstance(each, Tick)]


def test_a_daemon_that_was_stopped_counts_nobodys_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause of its own the writer notes that it listens anew; only what is not heard from then is silence."""
    with writing(tmp_path) as writer:
        before, after = Voice(writer, "before"), Voice(writer, "after")
        for voice in (before, after):
            voice.start()
        passed = clock.monotonic
        monkeypatch.setattr(clock, "monotonic", lambda: passed() + 300.0)
        after.train(1)
        assert writer.tick(silent_s=5.0).result(timeout=30) == 0
        assert isinstance(log_of(writer, RunId("before"))[-1], PipelineStarted)
        assert isinstance(log_of(writer, RunId("after"))[-1], StepReport)
        monkeypatch.setattr(clock, "monotonic", lambda: passed() + 310.0)
        assert writer.tick(silent_s=5.0).result(timeout=30) == 2
        assert 5.0 < log_of(writer, RunId("before"))[-1].silent_s < 60.0


def test_a_run_that_is_silent_is_not_ticked_for_ever(tmp_path: Path) -> None:
    """Once ticks have shown that a run is silent there are no more, until it speaks again."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.start()
        writer.tell(RUN, lambda stream: setattr(stream, "heard_at", clock.monotonic() - 100.0)).result(timeout=30)
        assert writer.tick(silent_s=5.0).result(timeout=30) == 1
        assert writer.tick(silent_s=5.0).result(timeout=30) == 0
        voice.train(1)
        assert writer.tick(silent_s=5.0).result(timeout=30) == 0
        assert writer.tick(silent_s=0.0).result(timeout=30) == 1


def test_many_senders_at_once_are_all_taken(tmp_path: Path) -> None:
    """Senders on threads of their own, several to a run, each find all of theirs in the log and nothing doubled."""
    with writing(tmp_path) as writer:

        def send(number: int) -> int:
            voice: Speaker = Voice(writer, f"run-{number % 3}", attempt=f"attempt-{number}")
            return sum(voice.train(7).accepted for _ in range(10))

        taken: list[int] = []
        threads = [threading.Thread(target=lambda n=n: taken.append(send(n))) for n in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert taken == [70] * 9
        assert sum(len(log_of(writer, RunId(f"run-{n}"))) for n in range(3)) == 9 * 70 + 3 * 2


def test_runs_that_are_over_leave_the_memory_and_decide_as_before(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that rests between any two of its words has the log, state and decisions of one that never did."""

    def story(folder: Path, *, rests: bool) -> tuple[list[Observation], Any]:
        with writing(folder) as writer:
            voice = Voice(writer)

            def rest() -> None:
                if rests:
                    assert writer.rest(silent_s=-1.0).result(timeout=30) == 1
                    assert writer.resident == 0

            voice.start()
            voice.train(40)
            voice.tell(AttemptEnded(at=0.0, outcome="failed", step=voice.step))
            rest()
            voice = Voice(writer, attempt="attempt-2")
            voice.ready_to_roll_back()
            (command,) = voice.break_down().commands
            assert writer.rest(silent_s=-1.0).result(timeout=30) == 0
            voice.roll_back(command.id, command.step)
            voice.tell(AttemptEnded(at=0.0, outcome="interrupted", step=voice.step))
            rest()
            voice.tell(Heartbeat(at=0.0, step=voice.step))
            return log_of(writer), state_of(writer)

    monkeypatch.setattr(clock, "now", lambda: 1000.0)
    told, state = story(tmp_path_factory.mktemp("resting"), rests=True)
    assert (told, state) == story(tmp_path_factory.mktemp("staying"), rests=False)


def test_a_gap_while_a_run_rests_is_told_at_its_next_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was taken from memory hears that the daemon listens anew like everybody else."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.start()
        voice.tell(AttemptEnded(at=0.0, outcome="finished", step=0))
        assert writer.rest(silent_s=-1.0).result(timeout=30) == 1
        passed = clock.monotonic
        monkeypatch.setattr(clock, "monotonic", lambda: passed() + 300.0)
        writer.tick(silent_s=5.0).result(timeout=30)
        voice.tell(Heartbeat(at=0.0, step=0))
        assert [type(each) for each in log_of(writer)[-2:]] == [PipelineStarted, Heartbeat]


@pytest.mark.parametrize("damage", ['{"version":"?"}', "DELETE"])
def test_a_snapshot_that_cannot_be_read_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """One that lacks a part leads to the one before it, without that to a fold from the start, to the same state."""
    with writing(tmp_path) as writer:
        voice = Voice(writer)
        voice.ready_to_roll_back()
        writer.write(lambda c: Stream(c, RUN).rest(c)).result(timeout=30)
        voice.train(20)
        writer.write(lambda c: Stream(c, RUN).rest(c)).result(timeout=30)
        before = state_of(writer)

        def spoil(connection: Connection) -> None:
            newest = "sequence = (SELECT max(sequence) FROM snapshots)"
            if damage == "DELETE":
                connection.execute(text(f"DELETE FROM snapshots WHERE NOT {newest}"))
            document = damage.replace("?", VERSION) if damage != "DELETE" else f'{{"version":"{VERSION}"}}'
            connection.execute(
                text(f"UPDATE snapshots SET document = :document WHERE {newest}"), {"document": document}
            )

        writer.write(spoil).result(timeout=30)
    with writing(tmp_path) as writer:
        assert state_of(writer) == before
    assert "is passed over: the snapshot lacks catalog, deciding" in caplog.text
