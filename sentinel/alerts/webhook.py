"""Alerts to any address that takes a JSON POST."""

from __future__ import annotations

from typing import Final

import httpx

from sentinel.alerts.message import message
from sentinel.domain.actions import Action
from sentinel.domain.executor import Execution
from sentinel.protocol.codec import dumps

TIMEOUT_S: Final = 5.0
PASSES: Final = frozenset({408, 429})
"""Refusals that another try may not meet: too slow, too often."""


class Webhook:
    """Posts each alert; the header ``Idempotency-Key`` is the same in every try of one alert.

    Args:
        url: the receiver.
        public_url: where people reach the daemon.
    """

    name = "webhook"

    def __init__(self, url: str, public_url: str) -> None:
        self._url = url
        self._public_url = public_url
        self._client = httpx.Client(timeout=TIMEOUT_S)

    def execute(self, action: Action) -> Execution:
        """Posts it once. A refusal is final, but for 408 and 429; all else may pass."""
        told = message(action, self._public_url)
        headers = {"Content-Type": "application/json", "Idempotency-Key": told.id}
        try:
            answer = self._client.post(self._url, content=dumps(told), headers=headers)
        except httpx.HTTPError as error:
            return Execution(done=False, reason=f"the webhook does not answer: {type(error).__name__}: {error}")
        if answer.is_success:
            return Execution(done=True)
        final = answer.is_client_error and answer.status_code not in PASSES
        return Execution(done=False, reason=f"the webhook answered HTTP {answer.status_code}", retryable=not final)

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()
