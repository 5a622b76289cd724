from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sentinel.protocol.commands import Reply, Restart
from sentinel.protocol.ids import AttemptId, CommandId, IncidentId
from sentinel.protocol.observations import CommandResult, ObservationBatch
from tests.daemons import Agent, serving
from tests.fakes import FakeDaemon
from tests.launched import NOBODY, WITHIN_S, Launched, is_alive, says, wait


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Starts launchers of Python programs."""
    with ExitStack() as running:

        def start(program: str, *options: str, url: str = NOBODY) -> Launched:
            command = [sys.executable, "-c", program]
            return running.enter_context(Launched(tmp_path, command, "--url", url, *options))

        yield start


@pytest.mark.parametrize(
    ("program", "code"),
    [("pass", 0), ("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_the_exit_code_is_the_commands(launch: Callable[..., Launched], program: str, code: int) -> None:
    """What the shell learns is what it would have learned without a launcher."""
    assert launch(program).end() == code


def test_output_is_handed_on_as_it_is(launch: Callable[..., Launched]) -> None:
    """Both streams come through unchanged, bytes that are no text and a line without an end included."""
    launched = launch("import os; os.write(1, b'out\\n\\x80' * 3); os.write(2, b'err\\r' * 40000)")
    launched.process.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    assert launched.end() == 0
    assert launched.stdout == "out\n\N{REPLACEMENT CHARACTER}" * 3
    assert launched.stderr.replace("\n", "\r") == "err\r" * 40000


def test_output_is_handed_on_at_once(launch: Callable[..., Launched]) -> None:
    """A line is there while the training still runs."""
    launched = launch("import sys; print('now', file=sys.stderr, flush=True); sys.stdin.read()", "--mode", "act")
    assert launched.process.stderr is not None
    line = launched.process.stderr.readline()
    assert line == "now\n", launched.end() or launched.stderr
    assert launched.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_training_and_nothing_is_started_again(
    launch: Callable[..., Launched], number: signal.Signals
) -> None:
    """A preemption is no crash: the training does its last work, and its exit code is the launcher's."""
    program = (
        "import signal, sys\n"
        f"signal.signal({int(number)}, lambda *_: (print('saved', flush=True), sys.exit(3)))\n"
        f"{says('ready')}\n"
        "signal.pause()"
    )
    launched = launch(program, "--mode", "act", "--patience", "0.2")
    launched.wait_for("ready")
    launched.process.send_signal(number)
    assert launched.end() == 3
    assert launched.stdout == "saved\n"


def test_a_signal_ends_the_wait_for_a_daemon(launch: Callable[..., Launched]) -> None:
    """A preempted job has seconds: the launcher does not spend them on a daemon that is away."""
    launched = launch("import sys; sys.exit(5)", "--mode", "act", "--patience", "600")
    assert launched.process.stderr is not None
    assert "ended by exit code 5" in launched.process.stderr.readline()
    launched.process.send_signal(signal.SIGTERM)
    assert launched.end() == 5


def test_a_training_outlives_a_launcher_that_is_killed(launch: Callable[..., Launched]) -> None:
    """Its output goes on too: whoever prints to a stream that is gone would die of it."""
    program = (
        f"{says('ready')}\n"
        "import sys, time\n"
        "while os.getppid() == parent: time.sleep(0.02)\n"
        "print('still here', file=sys.stderr, flush=True)\n"
        f"{says('done')}"
    )
    launched = launch(f"import os; parent = os.getppid()\n{program}")
    launched.wait_for("ready")
    launched.process.kill()
    launched.wait_for("done")
    assert "still here" in launched.process.communicate(timeout=WITHIN_S)[1]


def test_without_a_daemon_it_decides_by_itself_and_stops_without_progress(launch: Callable[..., Launched]) -> None:
    """What dies at its start is tried twice more, then it is said why no more, and the exit code is not 0."""
    launched = launch("print('try', flush=True); raise SystemExit(5)", "--mode", "act", "--patience", "0.2")
    assert launched.end() == 5
    assert launched.stdout == "try\n" * 3
    assert "no daemon answered" in launched.stderr
    assert "2 restarts in a row did not get beyond step 0" in launched.stderr


def test_in_observe_mode_nothing_is_started_again(launch: Callable[..., Launched]) -> None:
    """By default it relays and reports."""
    launched = launch("print('once', flush=True); raise SystemExit(5)")
    assert launched.end() == 5
    assert launched.stdout == "once\n"


def test_the_daemon_orders_the_restarts_and_shows_what_was_said_last(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """The incident has exit code and last lines, and its decisions say what was done until a person was asked."""
    with serving(tmp_path) as daemon, Agent(daemon.url) as person:
        program = "import sys; print('[/red] CUDA error: out of luck', file=sys.stderr); sys.exit(5)"
        launched = launch(program, "--mode", "act", "--run", "doomed", url=daemon.url)
        assert launched.end() == 5
        (incident,) = person.get("/v1/incidents", run="doomed")["incidents"]
        story = person.get(f"/v1/incidents/{incident['id']}")
        show = [sys.executable, "-m", "sentinel.cli.main", "incidents", "show", incident["id"], "--url", daemon.url]
        shown = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert "ended by exit code 5; it said last:\n      [/red] CUDA error: out of luck\n" in shown
    assert (incident["symptom"], incident["state"], incident["severity"]) == ("crash", "escalated", "critical")
    assert "CUDA error: out of luck" in incident["reason"]
    assert [(each["exit_code"], each["stderr_tail"]) for each in story["crashes"]] == [
        (5, "[/red] CUDA error: out of luck")
    ] * 3
    assert [each["rung"] for each in story["decisions"]] == ["restart", "restart", "escalate"]
    assert "2 restarts in a row did not get beyond step 0" in launched.stderr


def _announces(progress: int, ended: str = "", *, attempt: str = "a", process: int = 1) -> str:
    """Python that says what an agent of run ``r`` says: how far it is, and how it has ended."""
    return (
        "import json, os, pathlib\n"
        "folder = pathlib.Path(os.environ['SENTINEL_LAUNCHER'])\n"
        f"(folder / 'progress').write_text('{progress}')\n"
        f"{bool(ended)} and (folder / 'ended').write_text({ended!r})\n"
        "(folder / 'attempt.json').write_text(json.dumps("
        f"{{'run': 'r', 'attempt': {attempt!r}, 'pins': str(folder), 'process_id': {process}}}))\n"
    )


@pytest.mark.parametrize(
    ("progress", "ended", "reason"),
    [
        (8, "", "the training has gone on to step 8"),
        (3, "", "the training has gone back to step 3"),
        (7, "unwatched", "the training is unwatched, what runs now is not known"),
        (7, "finished", "the training is finished, what runs now is not known"),
    ],
)
def test_a_training_that_has_gone_on_is_not_ended(
    launch: Callable[..., Launched], progress: int, ended: str, reason: str
) -> None:
    """An order to end what hung after step 7 is refused where it may live: elsewhere, or nobody counts."""
    answers: list[CommandResult] = []

    def order(batch: ObservationBatch) -> Reply:
        answers.extend(each for each in batch.observations if isinstance(each, CommandResult))
        restart = Restart(id=CommandId("c"), incident=IncidentId("i"), attempt=AttemptId("a"), after_step=7)
        return Reply(accepted=len(batch.observations), commands=() if answers else (restart,))

    with FakeDaemon(order) as daemon:
        launched = launch(_announces(progress, ended) + "input()", "--mode", "act", url=daemon.url)
        wait(lambda: bool(answers))
        assert launched.process.stdin is not None
        launched.process.stdin.write("\n")
        assert launched.end() == 0, launched.stderr
    assert [(each.outcome, each.reason) for each in answers] == [("refused", reason)]


def test_an_order_that_comes_late_does_not_end_the_next_start(launch: Callable[..., Launched]) -> None:
    """The launcher has decided by itself, and the daemon's order for the dead attempt comes while the next starts."""
    answers: list[CommandResult] = []
    late: list[Restart] = []

    def order(batch: ObservationBatch) -> Reply:
        answers.extend(each for each in batch.observations if isinstance(each, CommandResult))
        return Reply(accepted=len(batch.observations), commands=() if answers else tuple(late))

    second = f"print('second', flush=True)\n{says('second')}\ninput()"
    first = f"{_announces(7)}{says('first')}\nos.kill(os.getpid(), 9)"
    program = f"import os\nexec({second!r} if os.path.exists('first') else {first!r})"
    with FakeDaemon(order, behaviour="error") as daemon:
        launched = launch(program, "--mode", "act", "--patience", "0.2", url=daemon.url)
        launched.wait_for("second")
        late.append(Restart(id=CommandId("c"), incident=IncidentId("i"), attempt=AttemptId("a"), after_step=7))
        daemon.behaviour = "answers"
        wait(lambda: bool(answers))
        assert launched.process.stdin is not None
        launched.process.stdin.write("\n")
        assert launched.end() == 0, launched.stderr
    assert launched.stdout == "second\n"
    assert [(each.outcome, each.reason) for each in answers] == [("succeeded", "it had been started again already")]


def test_a_script_of_two_trainings_does_not_give_the_second_ones_checkpoint_to_the_first(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """Where the second has died the script begins by itself; one that torchrun has started again is not a second."""
    row = {"id": "c7", "step": 7, "state": "verified", "elsewhere": str(tmp_path / "first")}
    one = f"{_announces(7)}{says('first')}\n"
    waits = "import time; time.sleep(1)\n"
    again = one + waits + _announces(7, attempt="b", process=2)
    two = one + waits + _announces(7, attempt="b")
    begun = []
    for trainings in (one, again, two):
        dies = f"(folder / 'manifest.json').write_text({json.dumps({'checkpoints': [row]})!r})\nos.kill(os.getpid(), 9)"
        says_what_it_is_told = "print(os.environ.get('SENTINEL_RUN'), os.environ.get('SENTINEL_RESUME'))"
        program = f"import os\nexec({says_what_it_is_told!r} if os.path.exists('first') else {trainings + dies!r})"
        launched = launch(program, "--mode", "act", "--patience", "0.2")
        assert launched.end() == 0, launched.stderr
        begun.append(launched.stdout)
        (tmp_path / "first").unlink()
    assert begun == ["r c7\n", "r c7\n", "None None\n"]


def test_a_name_that_was_made_up_is_no_name_for_the_training(launch: Callable[..., Launched]) -> None:
    """Who died before it said which run it is may go on with one of months: that one's name is kept beside it."""
    died = f"{says('first')}\nos.kill(os.getpid(), 9)"
    again = "print(os.environ.get('SENTINEL_RUN'))"
    program = f"import os\nexec({again!r} if os.path.exists('first') else {died!r})"
    launched = launch(program, "--mode", "act", "--patience", "0.2")
    assert launched.end() == 0, launched.stderr
    assert launched.stdout == "None\n"


def test_what_the_training_left_behind_is_ended_before_a_restart(launch: Callable[..., Launched]) -> None:
    """Children of children that ignore SIGTERM, in a session of their own: none holds the GPU of the next start."""
    child = f"import signal; signal.signal(15, signal.SIG_IGN); {says('child')}; signal.pause()"
    program = (
        "import os, subprocess, sys, time\n"
        "if os.path.exists('child'):\n"
        "    old = int(open('child').read())\n"
        "    sys.exit(os.path.exists(f'/proc/{old}'))\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "while not os.path.exists('child'): time.sleep(0.02)\n"
        "os.kill(os.getpid(), 9)"
    )
    launched = launch(program, "--mode", "act", "--patience", "0.2", "--grace", "0.2")
    assert launched.end() == 0, launched.stderr
    assert not is_alive(int(launched.wait_for("child")))


def test_a_command_that_cannot_be_started_is_told() -> None:
    """As a shell does: 127, and the name of what is not there."""
    command = [sys.executable, "-m", "sentinel.launcher", "--", "no-such-program"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command"),
        (["--restarts", "-1", "--", "true"], "is no number of restarts"),
        (["--run", "no name", "--", "true"], "cannot name a run"),
        (["--url", "ftp://x", "--", "true"], "is not an address"),
        (["--token-file", "nowhere", "--", "true"], "cannot be read"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(arguments: list[str], message: str) -> None:
    """Nothing is started under options that are not what was meant."""
    command: list[Any] = [sys.executable, "-m", "sentinel.launcher", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
