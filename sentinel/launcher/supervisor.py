"""Runs a training to its end, over restarts."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sentinel import clock
from sentinel.launcher import announced, stacks
from sentinel.launcher.beginning import Beginning
from sentinel.launcher.options import Options
from sentinel.launcher.processes import Training, how_it_ended
from sentinel.launcher.relay import Relay
from sentinel.launcher.reporter import Reporter
from sentinel.launcher.restarts import Restarts
from sentinel.protocol.commands import DumpStacks, Restart
from sentinel.protocol.ids import AttemptId, CheckpointId, RunId
from sentinel.protocol.launching import FOLDER_VARIABLE, RESUME_VARIABLE
from sentinel.protocol.observations import CommandResult
from sentinel.protocol.processes import CrashReport, LauncherStarted

LOOK_EVERY_S: Final = 0.2
LAST_DELIVERY_S: Final = 2.0
PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What a scheduler or a person says to the training: after it nothing is started again."""
NO_SUCH_PROGRAM: Final = 127
"""As a shell's."""
TAIL_LINES: Final = 40
TAIL_CHARACTERS: Final = 8_000


class Supervisor:
    """One call of ``sentinel run``.

    Args:
        options: what it is told.
        folder: for the files that pass between the launcher and the training.
        say: prints a line.
    """

    def __init__(self, options: Options, folder: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._folder = folder
        self._say = say
        self._restarts = Restarts(options.restarts)
        self._host = os.uname().nodename
        self._run = options.run
        self._attempt = AttemptId("")
        self._met = 0
        """Attempts that one process of the present start has begun: a script may train one model after the other."""
        self._leader = 0
        self._pins: Path | None = None
        self._asked: signal.Signals | None = None
        self._training: Training | None = None
        self._relays: list[Relay] = []
        self._has_failed = False
        self._reporter = Reporter(options.url, options.token, host=self._host, standing_by=self._standing_by, say=say)

    def run(self) -> int:
        """Starts the command, again where that is right; the exit code."""
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        beginning: Beginning | None = Beginning()
        code = 0
        while beginning is not None and (self._asked is None or self._training is None):
            code, beginning = self._attempt_from(beginning)
        if code and self._options.acts and self._attempt:  # whatever is decided later, nobody is there to do it
            self._restarts.allowed = 0
            self._reporter.offer(self._standing_by())
        self._reporter.close(LAST_DELIVERY_S)
        return 128 - code if code < 0 else code

    def _attempt_from(self, beginning: Beginning) -> tuple[int, Beginning | None]:
        """One start of the command, to its end; its exit code, and where to begin again if that is to be."""
        announced.forget(self._folder)
        self._met = self._leader = 0
        relay = Relay(self._folder / f"stderr-{self._restarts.made}")
        self._relays.append(relay)
        environment = {**os.environ, FOLDER_VARIABLE: str(self._folder)}
        if self._run is not None:
            environment["SENTINEL_RUN"] = self._run
        if self._restarts.made:
            environment.pop(RESUME_VARIABLE, None)
        if beginning.checkpoint is not None:
            environment[RESUME_VARIABLE] = beginning.checkpoint
        training = self._training = Training(
            self._options.command,
            environment,
            stderr=relay.write_end,
            others=[each.process_id for each in self._relays],
        )
        relay.opened()
        if self._asked is not None:  # while it was being started
            training.pass_on(self._asked)
        while (code := training.wait(LOOK_EVERY_S)) is None:
            again = self._look(training)
            if again is not None:
                return -signal.SIGKILL, again
        self._guarded(self._meet_attempt)
        said = relay.tail()
        if code == 0 or self._asked is not None:
            return code, None
        try:
            return code, self._after_crash(training, code, said)
        except Exception as error:  # noqa: BLE001 - whatever it was, the shell is to learn how the command ended
            self._say(f"an error of the launcher's own, so no restart: {type(error).__name__}: {error}")
            return code, None

    def _look(self, training: Training) -> Beginning | None:
        """What there is to be done while the training runs; where to begin again if it was ended for that."""
        found: list[Beginning] = []

        def look() -> None:
            self._meet_attempt()
            while self._reporter.orders:
                order = self._reporter.orders.popleft()
                if isinstance(order, DumpStacks):
                    self._dump(training, order)
                elif isinstance(order, Restart) and (beginning := self._end_for(training, order)) is not None:
                    found.append(beginning)
                    return

        self._guarded(look)
        return found[0] if found else None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a bug of ours must not harm the training
            if not self._has_failed:
                self._has_failed = True
                self._say(f"an error of the launcher's own: {type(error).__name__}: {error}; the training goes on")

    def _meet_attempt(self) -> None:
        """Speaks for the attempt that the training has begun."""
        told = announced.announced(self._folder)
        if told is not None and told.attempt != self._attempt:
            self._run, self._attempt, self._pins = told.run, told.attempt, told.pins
            self._met = self._met + 1 if told.process == self._leader else 1  # torchrun may have started it again
            self._leader = told.process
            self._reporter.speak_for(told.run, told.attempt, spool=told.pins.parent / "spool")

    def _standing_by(self) -> LauncherStarted:
        return LauncherStarted(
            at=clock.now(),
            host=self._host,
            process_id=os.getpid(),
            restarts_left=self._left(),
            can_restart=self._options.acts,
        )

    def _left(self) -> int:
        return self._restarts.left if self._options.acts else 0

    def _dump(self, training: Training, order: DumpStacks) -> None:
        """Tells where every rank stands."""
        step = announced.reached(self._folder)
        found = stacks.collect(self._folder, training.processes())
        for each in found:
            self._reporter.offer(each.report(host=self._host, step=step, reason=order.reason))
        self._say(f"stacks of {len(found)} processes told, because {order.reason}")
        reason = "" if found else "no process can be asked: none has begun to train under an agent"
        self._answer(order, "succeeded" if found else "failed", reason)

    def _end_for(self, training: Training, order: Restart) -> Beginning | None:
        """Ends the processes so that they can be started again; None where that may not be or cannot."""
        if order.attempt != self._attempt:
            return None
        if not self._met:  # it is of the attempt before, and that was ended and started again
            self._answer(order, "succeeded", "it had been started again already")
            return None
        step = announced.reached(self._folder)
        if why_not := announced.may_live(self._folder, order.after_step):
            self._answer(order, "refused", why_not)
            return None
        self._restarts.failed(step)
        why_not = "it only observes" if not self._options.acts else self._restarts.why_none
        if why_not:
            self._say(f"no restart, {why_not}")
            self._answer(order, "refused", why_not)
            return None
        beginning = self._beginning(order.checkpoint, order.step)
        self._say(f"ending the training to start it again {beginning}: {order.reason}")
        if not training.end(self._options.grace_s):
            left = sorted(training.processes())
            self._say(f"processes {left} do not end even when killed: no restart")
            self._answer(order, "failed", f"processes {left} do not end even when killed")
            return None
        self._answer(order, "succeeded", "")
        self._restarts.started_again()
        return beginning

    def _after_crash(self, training: Training, code: int, said: str) -> Beginning | None:
        """Reports the crash, and begins again where the daemon says; where none answers, by what is known here."""
        step = announced.reached(self._folder)
        self._restarts.failed(step)
        if not self._attempt:
            self._name_attempt()
        how = how_it_ended(code)
        self._reporter.notices.clear()
        self._reporter.offer(
            CrashReport(
                at=clock.now(),
                host=self._host,
                exit_code=code if code >= 0 else None,
                signal=how if code < 0 else "",
                stderr_tail="\n".join(said.splitlines()[-TAIL_LINES:])[-TAIL_CHARACTERS:],
                restarts_left=self._left(),
            )
        )
        self._say(f"the training ended by {how} after step {step}")
        if not self._options.acts:
            return None
        beginning = self._decision()
        if beginning is None or self._asked is not None:
            return None
        if not training.end(self._options.grace_s):
            self._say(f"no restart: processes {sorted(training.processes())} do not end even when killed")
            return None
        self._restarts.started_again()
        self._say(f"starting the training again {beginning}; restarts left: {self._restarts.left}")
        return beginning

    def _decision(self) -> Beginning | None:
        """The daemon's choice, or where none answers our own; None for no restart, and why is said."""
        is_heard = self._reporter.delivered(self._options.patience_s)
        for _ in range(2):
            while is_heard and self._reporter.orders:
                order = self._reporter.orders.popleft()
                if isinstance(order, Restart) and order.attempt == self._attempt:
                    self._answer(order, "succeeded", "")
                    return self._beginning(order.checkpoint, order.step)
            self._reporter.offer(self._standing_by())  # what was told late is answered now
            is_heard = is_heard and self._reporter.delivered(self._options.patience_s)
        if why_not := self._restarts.why_none:
            self._say(f"no restart: {why_not}")
            return None
        if is_heard:
            told = self._reporter.notices[-1] if self._reporter.notices else "it says nothing of it"
            self._say(f"no restart, the daemon orders none: {told}")
            return None
        if announced.ended(self._folder) in announced.ORDERLY:
            self._say("no restart: no daemon answers, and the training had ended in an orderly way")
            return None
        newest = None if self._pins is None else announced.newest_verified(self._pins)
        self._say(f"no daemon answered for {self._options.patience_s:.0f} s: the launcher decides by itself")
        return Beginning() if newest is None else self._beginning(*newest)

    def _beginning(self, checkpoint: CheckpointId | None, step: int) -> Beginning:
        """From a checkpoint; where the script trains one model after the other, the first is not to have another's."""
        if self._met > 1:
            self._run = self._options.run
            return Beginning()
        return Beginning(checkpoint, step)

    def _name_attempt(self) -> None:
        """Nobody has told a name: the training died before it began. If it goes on with a run, that keeps its own."""
        name = Path(self._options.command[0]).stem
        made_up = f"{''.join(each if each.isalnum() and each.isascii() else '-' for each in name).strip('-') or 'run'}"
        self._attempt = AttemptId(f"l-{os.urandom(4).hex()}")
        run = self._run or RunId(f"{made_up}-{os.urandom(3).hex()}")
        self._reporter.speak_for(run, self._attempt, spool=None)

    def _answer(self, order: DumpStacks | Restart, outcome: str, reason: str) -> None:
        step = announced.reached(self._folder)
        self._reporter.offer(
            CommandResult(at=clock.now(), command=order.id, outcome=outcome, step=step, reason=reason)  # type: ignore[arg-type]
        )

    def _pass_on(self, number: int, _frame: object) -> None:
        self._asked = signal.Signals(number)
        self._reporter.hurried = True
        if self._training is not None:
            self._training.pass_on(number)


def supervise(options: Options) -> int:
    """Runs a training under supervision; the exit code."""
    if shutil.which(options.command[0]) is None:
        _say(f"{options.command[0]}: no such program")
        return NO_SUCH_PROGRAM
    if options.acts and any(word.replace("_", "-").startswith("--max-restarts") for word in options.command):
        _say("warning: torchrun's own restarts would all begin at the same checkpoint: leave them to Sentinel")
    with tempfile.TemporaryDirectory(prefix="sentinel-run-", ignore_cleanup_errors=True) as folder:
        return Supervisor(options, Path(folder), _say).run()


def _say(line: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"sentinel run: {line}\n")
        sys.stderr.flush()
