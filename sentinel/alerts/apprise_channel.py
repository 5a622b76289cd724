"""Alerts to whatever Apprise speaks to: Slack, PagerDuty, e-mail and about a hundred more."""

from __future__ import annotations

import queue
import threading
from typing import Final

import apprise

from sentinel.alerts.message import Message, message
from sentinel.domain.actions import Action
from sentinel.domain.executor import Execution

TIMEOUT_S: Final = 20.0
"""Apprise's own waits are longer for some services, and cannot be bounded from outside."""
_KINDS: Final = {"resolved": apprise.NotifyType.SUCCESS, "escalated": apprise.NotifyType.FAILURE}


def is_apprise_url(url: str) -> bool:
    """Whether Apprise knows what to do with it."""
    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


class AppriseChannel:
    """Hands each alert to Apprise on a thread that may be left behind: it waits long and tells little.

    Args:
        name: of the channel.
        url: Apprise's; it holds secrets and is never shown.
        public_url: where people reach the daemon.
    """

    def __init__(self, name: str, url: str, public_url: str) -> None:
        self.name = name
        self._service = apprise.Apprise.instantiate(url)
        self._public_url = public_url
        self._thread: threading.Thread | None = None

    def execute(self, action: Action) -> Execution:
        """Sends it. Apprise does not say whether a failure is final: every one is tried again."""
        if self._thread is not None and self._thread.is_alive():
            return Execution(done=False, reason="the try before has not come back yet")
        answers: queue.SimpleQueue[Execution] = queue.SimpleQueue()
        told = message(action, self._public_url)
        self._thread = threading.Thread(
            target=lambda: answers.put(self._notify(told)), name=f"sentinel-{self.name}", daemon=True
        )
        self._thread.start()
        try:
            return answers.get(timeout=TIMEOUT_S)
        except queue.Empty:
            return Execution(done=False, reason=f"no answer within {TIMEOUT_S:.0f} s")

    def _notify(self, told: Message) -> Execution:
        kind = _KINDS.get(told.status, apprise.NotifyType.WARNING)
        assert self._service is not None  # the address was looked at when it was read
        capture = apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s")  # type: ignore[no-untyped-call]
        with capture as said:
            try:
                sent = self._service.notify(title=told.title, body=f"{told.text}\n{told.link}", notify_type=kind)
            except Exception as error:  # noqa: BLE001 - whatever a service's plug-in raises is a failed try
                return Execution(done=False, reason=type(error).__name__)
            why = said.getvalue().strip().splitlines()
        if sent:
            return Execution(done=True)
        return Execution(done=False, reason=why[-1] if why else "Apprise could not deliver it")
