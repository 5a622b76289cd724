from __future__ import annotations

from typing import Any

import pytest

from sentinel.domain.decisions import Decision
from sentinel.domain.incidents import Incident
from sentinel.policy.announce import AlertStatus, announcement, shared_cause
from sentinel.policy.rules import Alerts
from sentinel.protocol.ids import DecisionId, IncidentId
from tests.policy.incident import incident

RESOLVED: dict[str, Any] = {"state": "resolved", "resolution": "back on its path"}


def _status(
    of: Incident, told: AlertStatus | None, *, rung: str = "rollback", severity: str = "critical"
) -> str | None:
    decision = Decision(
        id=DecisionId("d"),
        incident=IncidentId("i"),
        sequence=1,
        at=0.0,
        step=108,
        change="opened",
        rule="r",
        rung=rung,  # type: ignore[arg-type]
        outcome="ordered",
        reason="because",
    )
    found = announcement(of, decision, told, Alerts(severity=severity))  # type: ignore[arg-type]
    return found and f"{found.status}: {found.why}"


def test_people_are_told_of_each_stage_once() -> None:
    """One alert when it begins, one when it escalates, one when it is over, and none in between."""
    assert _status(incident(), None) == "firing: because"
    assert _status(incident(), "firing") is None
    assert _status(incident(state="escalated"), "firing", rung="escalate") == "escalated: because"
    assert _status(incident(state="escalated"), "escalated", rung="escalate") is None
    assert _status(incident(**RESOLVED), "escalated", rung="none") == "resolved: back on its path"
    assert _status(incident(**RESOLVED), "resolved", rung="none") is None


def test_what_begins_by_escalating_is_one_alert() -> None:
    """A fault that needs a person at once is told as that."""
    assert _status(incident(), None, rung="escalate") == "escalated: because"


def test_the_end_of_what_nobody_was_told_of_is_not_told() -> None:
    """Without a beginning there is no all-clear."""
    assert _status(incident(**RESOLVED), None, rung="none") is None


def test_a_fault_that_comes_back_is_told_again() -> None:
    """After an all-clear the same incident fires anew."""
    assert _status(incident(), "resolved") == "firing: because"


@pytest.mark.parametrize(
    ("severity", "wanted", "told"),
    [("warning", "critical", False), ("warning", "warning", True), ("info", "warning", False), ("info", "info", True)],
)
def test_only_what_is_severe_enough_is_told(severity: str, wanted: str, *, told: bool) -> None:
    """The policy chooses from which severity on people are told."""
    assert (_status(incident(severity=severity), None, severity=wanted) is not None) is told


def test_what_grows_severe_is_told_then() -> None:
    """An incident that was not worth telling is told once it is."""
    assert _status(incident(severity="warning"), None) is None
    assert _status(incident(severity="critical"), None) == "firing: because"


@pytest.mark.parametrize(
    ("symptoms", "word"),
    [
        (("loss_spike",), ""),
        (("hang", "nonfinite"), ""),
        (("gradient_explosion",), ""),
        (("hang",), "firing critical"),
        (("device_fault", "throughput_drop"), "firing critical"),
    ],
)
def test_what_may_come_from_outside_a_run_waits_for_company(symptoms: tuple[str, ...], word: str) -> None:
    """A fault of the training itself is told alone and at once; a hang may be a switch that others see too."""
    assert shared_cause(incident(symptoms=symptoms), "firing") == word
