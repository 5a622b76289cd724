"""Takes planned alerts out of the outbox, sends them, and tells the run's log how it went.

An alert is claimed before it is sent and answered for after, so a daemon that dies in between sends it again: people
are told at least once, and the pair (incident, status) lets a receiver drop the second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sentinel import clock
from sentinel.domain.actions import Action
from sentinel.domain.executor import Execution, Executor, Route
from sentinel.engine.writer import Writer
from sentinel.protocol.ids import ActionId, RunId
from sentinel.protocol.observations import ActionResult
from sentinel.store import alert_claims
from sentinel.store.alert_claims import Claim

log = logging.getLogger(__name__)

MOST_TRIES: Final = 8
"""With waits that double from 5 s this is about 20 minutes: a receiver that is away longer is seen to by people."""
ANSWER_WITHIN_S: Final = 30.0
_FAILED_BY_BUG: Final = Execution(done=False, reason="the channel raised an error: see the daemon's log")


class Dispatcher:
    """Sends what is due; ``dispatch`` is called from one thread at a time.

    Args:
        writer: through which everything is written.
        routes: the channels, each with the alerts that it is for.
        tried: told (channel, "sent" or "failed") for each try, such as a metric.
    """

    def __init__(
        self,
        writer: Writer,
        routes: Sequence[Route],
        tried: Callable[[str, str], None] = lambda _channel, _outcome: None,
    ) -> None:
        self._writer = writer
        self.routes = routes
        self._tried = tried
        self._reached: dict[ActionId, set[str]] = {}
        """Channels that have an alert already, while others are still tried."""
        self._ending = False
        self.looked_at = clock.monotonic()
        """Monotonic clock when the outbox was last looked into to its end."""

    def stop(self) -> None:
        """Sends no more; what was claimed and not sent is due again after its wait."""
        self._ending = True

    def dispatch(self) -> int:
        """Sends every alert that is due; returns how many were settled.

        Raises:
            StoreUnavailable: the outbox cannot be read or written; nothing was sent.
        """
        due = self._writer.write(lambda connection: alert_claims.claim_due(connection, at=clock.now()))
        settled = 0
        for claim in due.result(ANSWER_WITHIN_S):
            if self._ending:
                break
            tried = [self._try(each.channel, told) for each in self.routes if (told := _together(each, claim))]
            failures = [each for each in tried if not each.done]
            if failures and any(each.retryable for each in failures) and claim.tries < MOST_TRIES:
                continue
            self._reached.pop(claim.id, None)
            for action in claim.alerts:
                self._settle(action, failures)
            settled += len(claim.alerts)
        self.looked_at = clock.monotonic()
        return settled

    def _try(self, channel: Executor, action: Action) -> Execution:
        reached = self._reached.setdefault(action.id, set())
        if channel.name in reached:
            return Execution(done=True)
        try:
            execution = channel.execute(action)
        except Exception:
            log.exception("channel %s failed on alert %s", channel.name, action.id)
            execution = _FAILED_BY_BUG
        self._tried(channel.name, "sent" if execution.done else "failed")
        if execution.done:
            reached.add(channel.name)
        else:
            log.warning("alert %s was not sent by %s: %s", action.id, channel.name, execution.reason)
        return execution

    def _settle(self, action: Action, failures: Sequence[Execution]) -> None:
        outcome = ActionResult(
            at=clock.now(),
            action=action.id,
            outcome="failed" if failures else "succeeded",
            reason="; ".join(each.reason for each in failures),
        )
        run = RunId(action.payload["run"])
        self._writer.tell(run, lambda _stream: outcome).result(ANSWER_WITHIN_S)


def _together(route: Route, claim: Claim) -> Action | None:
    """One action for the claimed alerts that are for this channel; None if none is."""
    taken = [each for each in claim.alerts if route.takes(each)]
    if len(taken) < 2:
        return replace(taken[0], id=claim.id) if taken else None
    payload = {**taken[0].payload, "group": [dict(each.payload) for each in taken]}
    return replace(taken[0], id=claim.id, payload=payload)
