"""Alerts to Prometheus's Alertmanager, through its API v2: grouping, silences and on-call are its own.

It forgets what it is not told again: alerts are posted anew every ``REPOST_EVERY_S`` while their incident is open, also
to one that was restarted. Each ends by itself ``ENDS_AFTER_S`` after the last post, so that a daemon that is away for a
while does not seem to say that all is well, and one that is gone for good leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from sentinel import clock
from sentinel.alerts.message import members, message
from sentinel.alerts.webhook import PASSES, TIMEOUT_S
from sentinel.domain.actions import Action
from sentinel.domain.executor import Execution

REPOST_EVERY_S: Final = 60.0
ENDS_AFTER_S: Final = 3600.0
ALERT_NAME: Final = "SentinelIncident"
LABELS: Final = ("run", "severity", "symptom", "node", "incident")


class Alertmanager:
    """Posts each incident as an alert of its own.

    Args:
        name: of the channel.
        url: where Alertmanager listens.
        public_url: where people reach the daemon.
    """

    def __init__(self, name: str, url: str, public_url: str) -> None:
        self.name = name
        self._url = f"{url.rstrip('/')}/api/v2/alerts"
        self._public_url = public_url
        self._client = httpx.Client(timeout=TIMEOUT_S)

    def execute(self, action: Action) -> Execution:
        """Posts what is told; what was told of it under another severity ends."""
        return self._post([alert for each in members(action) for alert in self._alerts(each)])

    def repost(self, standing: Sequence[Action]) -> Execution:
        """Posts again what still holds."""
        return self._post([self._alert(each, each.payload["severity"]) for each in standing])

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def _alerts(self, action: Action) -> list[dict[str, Any]]:
        before = action.payload.get("told_severity", action.payload["severity"])
        if action.payload["status"] == "resolved":
            return [self._alert(action, before, is_over=True)]
        now = self._alert(action, action.payload["severity"])
        return [now] if before == action.payload["severity"] else [self._alert(action, before, is_over=True), now]

    def _alert(self, action: Action, severity: str, *, is_over: bool = False) -> dict[str, Any]:
        told = message(action, self._public_url)
        payload = action.payload
        labels = {name: str(payload[name]) for name in LABELS if payload.get(name)} | {"severity": severity}
        ends_at = clock.now() + (0.0 if is_over else ENDS_AFTER_S)
        return {
            "labels": {"alertname": ALERT_NAME} | labels,
            "annotations": {
                "summary": told.title,
                "why": payload["what"],
                "decision": payload["why_told"],
                "link": told.link,
            },
            "startsAt": _moment(min(payload.get("detected_at", payload["at"]), ends_at)),
            "endsAt": _moment(ends_at),
            "generatorURL": told.link,
        }

    def _post(self, alerts: list[dict[str, Any]]) -> Execution:
        try:
            answer = self._client.post(self._url, json=alerts)
        except httpx.HTTPError as error:
            return Execution(done=False, reason=f"Alertmanager does not answer: {type(error).__name__}: {error}")
        if answer.is_success:
            return Execution(done=True)
        final = answer.is_client_error and answer.status_code not in PASSES
        reason = f"Alertmanager answered HTTP {answer.status_code}: {answer.text[:200]}"
        return Execution(done=False, reason=reason, retryable=not final)


def _moment(at: float) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(seconds=at)).isoformat()
