"""Tells Alertmanager again what still holds: it forgets."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.alerts.alertmanager import Alertmanager
from sentinel.domain.errors import SentinelError
from sentinel.domain.executor import Route
from sentinel.store import action_outbox
from sentinel.store.session import Database


class Repost:
    """The alerts of open incidents, posted anew.

    Args:
        database: only read.
        routes: those to an Alertmanager are served.
    """

    def __init__(self, database: Database, routes: Sequence[Route]) -> None:
        self._database = database
        self._routes = [(each, each.channel) for each in routes if isinstance(each.channel, Alertmanager)]

    @property
    def is_needed(self) -> bool:
        """Whether there is anyone to tell."""
        return bool(self._routes)

    def repost(self) -> None:
        """Posts what stands.

        Raises:
            StoreUnavailable: the outbox cannot be read.
            SentinelError: an Alertmanager did not take it.
        """
        with self._database.reading() as connection:
            standing = action_outbox.standing_alerts(connection)
        posts = [(each, [alert for alert in standing if route.takes(alert)]) for route, each in self._routes]
        tried = [(each.name, each.repost(alerts)) for each, alerts in posts if alerts]
        failed = [f"{name}: {execution.reason}" for name, execution in tried if not execution.done]
        if failed:
            raise SentinelError("; ".join(failed))
