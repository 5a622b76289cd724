"""Alerts to the daemon's own log: the channel that needs no setting up."""

from __future__ import annotations

import logging

from sentinel.alerts.message import message
from sentinel.domain.actions import Action
from sentinel.domain.executor import Execution

log = logging.getLogger("sentinel.alerts")


class LogChannel:
    """Writes each alert as one record; its end is one of a lower level.

    Args:
        public_url: where people reach the daemon.
    """

    name = "log"

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url

    def execute(self, action: Action) -> Execution:
        """Writes it."""
        told = message(action, self._public_url)
        level = logging.INFO if told.status == "resolved" else logging.WARNING
        log.log(level, "%s: %s (%s)", told.title, told.text.replace("\n", "; "), told.link)
        return Execution(done=True)
