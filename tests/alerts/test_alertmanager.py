from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sentinel import clock
from sentinel.alerts.alertmanager import ENDS_AFTER_S, Alertmanager
from sentinel.domain.actions import Action
from sentinel.domain.errors import SentinelError
from sentinel.domain.executor import Route
from sentinel.engine.repost import Repost
from sentinel.store import action_outbox
from sentinel.store.session import open_database
from tests.alertmanager import RealAlertmanager, alertmanager
from tests.alerts.alert import PUBLIC_URL, alert
from tests.daemons import Agent, database_url, serving
from tests.ports import free_port
from tests.receiver import Receiver

pytestmark = pytest.mark.real


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Whoever Alertmanager tells."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def program(require_program: Callable[[str], str]) -> str:
    """Debian's name of it."""
    return require_program("prometheus-alertmanager")


@pytest.fixture
def real(tmp_path: Path, program: str, receiver: Receiver) -> Iterator[RealAlertmanager]:
    """An Alertmanager."""
    with alertmanager(program, tmp_path / "alertmanager", receiver.url) as real:
        yield real


def told(receiver: Receiver, status: str) -> dict[str, Any]:
    """The first alert of a status that Alertmanager passed on."""
    count = 1
    while True:
        for received in receiver.wait_for(count):
            for each in received.body["alerts"]:
                if each["status"] == status:
                    found: dict[str, Any] = each
                    return found
        count = len(receiver.received) + 1


def test_an_incident_fires_and_resolves_in_a_real_alertmanager(
    tmp_path: Path, real: RealAlertmanager, receiver: Receiver
) -> None:
    """A daemon's incident is an alert with its labels and words while it is open, and resolved with its end."""
    routes = tmp_path / "alerts.toml"
    routes.write_text(f'[[channels]]\nname = "am"\nalertmanager = "{real.url}"\n')
    routes.chmod(0o600)
    with serving(tmp_path, alerts_file=routes) as daemon, Agent(daemon.url) as agent:
        agent.ready_to_roll_back()
        (command,) = agent.break_down().commands
        firing = told(receiver, "firing")
        assert firing["labels"] == {
            "alertname": "SentinelIncident",
            "run": "run-1",
            "severity": "critical",
            "symptom": "nonfinite",
            "incident": command.incident,
        }
        assert firing["annotations"]["summary"] == "[firing] nonfinite in run run-1"
        assert "loss is nan" in firing["annotations"]["why"]
        assert "step 20" in firing["annotations"]["decision"]
        assert firing["annotations"]["link"] == f"{daemon.url}/incidents/{command.incident}"
        assert [each["labels"] for each in real.alerts()] == [firing["labels"]]
        agent.roll_back(command.id, 20)
        agent.train(40)
        assert told(receiver, "resolved")["labels"] == firing["labels"]
    assert real.alerts() == []


def test_what_still_holds_is_told_again(
    tmp_path: Path, program: str, real: RealAlertmanager, receiver: Receiver
) -> None:
    """An Alertmanager that lost its memory has the alerts of open incidents again, and no other, after a repost."""
    routes = tmp_path / "alerts.toml"
    routes.write_text(f'[[channels]]\nname = "am"\nalertmanager = "{real.url}"\n')
    routes.chmod(0o600)
    with serving(tmp_path, alerts_file=routes) as daemon, Agent(daemon.url) as agent:
        agent.ready_to_roll_back()
        (command,) = agent.break_down().commands
        told(receiver, "firing")
    with alertmanager(program, tmp_path / "another", receiver.url) as another:
        database = open_database(database_url(tmp_path))
        with closing(Alertmanager("am", another.url, PUBLIC_URL)) as channel:
            Repost(database, [Route(channel, runs="other-*")]).repost()
            assert another.alerts() == []
            Repost(database, [Route(channel)]).repost()
        database.close()
        (standing,) = another.alerts()
    assert standing["labels"]["incident"] == command.incident
    assert standing["status"]["state"] == "active"


def test_an_alert_that_worsens_is_one_alert(real: RealAlertmanager) -> None:
    """Under its new severity it fires, under the one before it ends; its end ends what was told last."""
    with closing(Alertmanager("am", real.url, PUBLIC_URL)) as channel:
        assert channel.execute(alert(severity="warning")).done
        assert channel.execute(alert(status="escalated", told_severity="warning")).done
        assert [each["labels"]["severity"] for each in real.alerts()] == ["critical"]
        assert channel.execute(alert(status="resolved", severity="critical")).done
        assert real.alerts() == []


def test_an_alert_outlives_a_short_absence_of_the_daemon(real: RealAlertmanager) -> None:
    """It ends an hour after the last post and not after Alertmanager's five minutes."""
    with closing(Alertmanager("am", real.url, PUBLIC_URL)) as channel:
        channel.execute(alert(detected_at=clock.now()))
    (standing,) = real.alerts()
    assert ENDS_AFTER_S == 3600.0
    assert standing["endsAt"] > standing["startsAt"]
    assert standing["endsAt"][:13] != standing["startsAt"][:13]


def test_what_it_refuses_and_what_is_away(tmp_path: Path, real: RealAlertmanager) -> None:
    """A refusal is final and has its words; an Alertmanager that is away may come back, and a repost says so."""
    with closing(Alertmanager("am", real.url, PUBLIC_URL)) as channel:
        refused = channel.execute(alert(severity=""))
    assert refused.done is True  # a label without a value is dropped
    with closing(Alertmanager("am", f"{real.url}/absent", PUBLIC_URL)) as channel:
        refused = channel.execute(alert())
    assert (refused.done, refused.retryable, "HTTP 404" in refused.reason) == (False, False, True)
    away = f"http://127.0.0.1:{free_port()}"
    with closing(Alertmanager("am", away, PUBLIC_URL)) as channel:
        failed = channel.execute(alert())
        assert (failed.done, failed.retryable, "does not answer" in failed.reason) == (False, True, True)
        with serving(tmp_path) as daemon, Agent(daemon.url) as agent:
            agent.ready_to_roll_back()
            agent.break_down()
            database = open_database(database_url(tmp_path))
            tried: list[Action] = []
            while not tried:
                with database.reading() as connection:
                    tried = action_outbox.standing_alerts(connection)
            with pytest.raises(SentinelError, match="am: Alertmanager does not answer"):
                Repost(database, [Route(channel)]).repost()
            database.close()
