"""What the agent prints: five lines at the start, one at the end."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass

from sentinel.protocol.observations import Mode
from sentinel.transport.sender import PENDING_LIMIT
from sentinel.transport.spool import LIMIT_BYTES
from sentinel_agent.agent import Leader
from sentinel_agent.tally import Tally
from sentinel_agent.trainer_facts import Saving

_MODES: dict[Mode, str] = {
    "observe": "incidents are told, nothing is done to the training",
    "act": "what the daemon orders is done",
    "off": "nothing happens",
}


def say(line: str) -> None:
    """Prints a line of ours on standard error, where progress bars are: over the bar, which is drawn again below.

    A terminal that is gone is no error.
    """
    with suppress(OSError, ValueError, AttributeError):
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{clear}sentinel: {line}\n")
        sys.stderr.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What an agent of any loop knows when its training starts."""

    run: str
    attempt: str
    mode: Mode
    step: int
    url: str
    answers: bool
    """Whether a daemon has answered."""
    problem: str | None
    """Why none has; None when it is not known yet."""
    spool: str
    """The folder where reports are kept while none does; empty if they are kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Opening):
    """What is known when a Lightning training starts."""

    saving: Saving
    checkpoint_every: int | None
    pins: str
    """The folder of the pins."""
    found: int
    """Checkpoints of earlier attempts that can be gone back to."""
    rollback_impossible: str
    exact_impossible: str
    """Why the data cannot go back too; empty if it can."""
    is_cuda: bool
    norm: str
    """How the gradient norm is read; empty if it is not."""
    gpu_problem: str | None


def opening_of(agent: Leader) -> Opening:
    """What is known of an agent that has begun."""
    sender, spool = agent.courier.sender, agent.spool
    return Opening(
        run=agent.run,
        attempt=agent.attempt,
        mode=agent.settings.mode,
        step=agent.step,
        url=agent.settings.url,
        answers=sender is not None and sender.delivered_total > 0,
        problem=None if sender is None else sender.problem,
        spool="" if spool is None or spool.problem else str(spool.folder),
    )


def opening_lines(start: Opening) -> tuple[str, str]:
    """Who this is; the daemon."""
    return (_who(start), _daemon(start))


def start_lines(start: Start) -> tuple[str, str, str, str, str]:
    """Who this is; the daemon; the checkpoints; the rollback; the readings."""
    return (*opening_lines(start), _checkpoints(start), _rollback(start), _readings(start))


def loop_lines(
    start: Opening, saves: str, rollback: str, reads: str, *, gpu_problem: str | None
) -> tuple[str, str, str, str, str]:
    """The same five lines for another loop, which says itself what it saves, how it goes back and what it reads."""
    gpu = ", GPU utilization, memory, power and temperature"
    readings = f"{reads}; cannot read GPU ({gpu_problem})" if gpu_problem else reads + gpu
    return (*opening_lines(start), f"checkpoints: {saves}", f"rollback: {rollback}", f"reads {readings}")


def end_line(tally: Tally) -> str:
    """What was done, and what it holds on disk."""
    kept = f", {_count(tally.kept, 'report')} kept for the next attempt to deliver" if tally.kept else ""
    return (
        f"{_count(tally.steps, 'step')} seen, {_count(tally.incidents, 'incident')}, "
        f"{_count(tally.rollbacks, 'rollback')}, {_count(tally.lost, 'report')} not delivered{kept}; "
        f"{_count(tally.pinned, 'checkpoint')} pinned, {tally.held_bytes / 1e6:.1f} MB of disk held by them alone"
    )


def _who(start: Opening) -> str:
    since = f"resumed at step {start.step}" if start.step else "from the start"
    return f"run {start.run}, attempt {start.attempt}, {since}, mode {start.mode}: {_MODES[start.mode]}"


def _daemon(start: Opening) -> str:
    if start.answers:
        return f"the daemon at {start.url} answers"
    problem = start.problem or "no answer yet"
    absent = f"no daemon takes reports at {start.url} ({problem})"
    is_token = problem.startswith(("HTTP 401", "HTTP 403"))
    remedy = "name a token that it takes with SENTINEL_TOKEN_FILE" if is_token else "start one with `sentinel serve`"
    if start.spool:
        kept = f"in {start.spool}, up to {LIMIT_BYTES / 1e6:.0f} MB, and delivered when one does"
    else:
        kept = f"in memory, up to {PENDING_LIMIT} reports, and lost at exit"
    return f"{absent}: telemetry is kept {kept}; {remedy}"


def _checkpoints(start: Start) -> str:
    saving, parts = start.saving, list(start.saving.every)
    if start.checkpoint_every:
        parts.insert(0, f"the agent saves every {start.checkpoint_every} steps")
    if start.found:
        parts.append(f"{_count(start.found, 'checkpoint')} of earlier attempts can be gone back to")
    text = f"checkpoints: {'; '.join(parts) if parts else _nothing_saved(saving)}; pinned under {start.pins}"
    if start.checkpoint_every or not saving.waits_for_epoch:
        return text
    first = f"step {start.step + saving.epoch_steps}" if saving.epoch_steps else "the end of the first epoch"
    until = f"; nothing to go back to before {first}" if parts and not start.found else ""
    remedy = "" if start.rollback_impossible else ": SentinelCallback(checkpoint_every=N) saves every N steps"
    return f"{text}{until}{remedy}"


def _nothing_saved(saving: Saving) -> str:
    if saving.weights_only:
        return "the script saves weights alone, and a rollback needs the optimizer's state too"
    return "the script saves none, so there is nothing to go back to"


def _rollback(start: Start) -> str:
    if start.rollback_impossible:
        return f"rollback: none, {start.rollback_impossible}"
    only = "" if start.mode == "act" else '; mode="act" allows it, until then it is only proposed'
    if start.exact_impossible:
        data = "forward, in place: weights, optimizer, schedulers and step go back, the data goes on"
        data += f" ({start.exact_impossible})"
    else:
        data = "exact: weights, optimizer, schedulers, random generators and data go back, what is suspect is skipped"
    return f"rollback: {data}{only}"


def _readings(start: Start) -> str:
    reads = ["loss", "learning rate", "phase times", "samples", "peak memory"]
    cannot = []
    if start.norm:
        reads.insert(1, f"gradient norm ({start.norm})")
    else:
        cannot.append("gradient norm (no gradients at hand)")
    if start.is_cuda:
        cannot.append("batch fingerprints (they are on the GPU)")
        reads[reads.index("phase times")] = "phase times (of the host, which runs ahead of the GPU)"
    else:
        reads.append("batch fingerprints")
    if start.gpu_problem is None:
        reads.append("GPU utilization, memory, power, temperature, clocks, throttling, ECC and Xid errors")
    else:
        cannot.append(f"GPU ({start.gpu_problem})")
    reads.append("tokens where batches are token ids")
    return f"reads {', '.join(reads)}" + (f"; cannot read {', '.join(cannot)}" if cannot else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
