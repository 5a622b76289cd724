from __future__ import annotations

from typing import Any

import pytest

from sentinel.domain.findings import Finding
from sentinel.domain.incidents import Incident
from sentinel.incidents.correlate import FLICKER_STEPS, REOPEN_STEPS
from sentinel.incidents.lifecycle import KEPT, IncidentChange, Incidents
from sentinel.protocol.ids import CheckpointId
from sentinel.protocol.observations import Tick
from tests.builders import RUN, entry

CHECKPOINT = CheckpointId("c90")


def _finding(phase: str = "began", *, symptom: str = "loss_spike", step: int = 100, **given: Any) -> Finding:
    base = {
        "detector": symptom,
        "symptom": symptom,
        "phase": phase,
        "severity": "warning",
        "verdict": "undecided",
        "onset_step": step,
        "step": step,
        "reason": f"{symptom} {phase}",
    }
    return Finding(**base | given)


MALIGNANT: dict[str, Any] = {"severity": "critical", "verdict": "malignant"}


class Case:
    """Incidents, told findings one after the other."""

    def __init__(self) -> None:
        self.incidents = Incidents(RUN)
        self.sequence = 0

    def find(self, finding: Finding, *, segment: int = 0) -> IncidentChange | None:
        """Tells a finding with the next entry."""
        self.sequence += 1
        return self.incidents.find(finding, self.entry, segment=segment)

    @property
    def entry(self) -> Any:
        """The newest entry."""
        return entry(Tick(at=0.0, silent_s=0.0), self.sequence)

    @property
    def only(self) -> Incident:
        """The one incident that there is."""
        (incident,) = self.incidents.state.incidents.values()
        return incident

    def roll_back(self, *, lost_steps: int = 10, lost_s: float = 2.0) -> IncidentChange:
        """Orders and carries out a rollback for the one incident."""
        self.incidents.mitigate(self.only, self.entry)
        return self.incidents.rolled_back(self.only, CHECKPOINT, self.entry, lost_steps=lost_steps, lost_s=lost_s)

    def resolve(self, *, step: int) -> IncidentChange:
        """The one incident is over."""
        return self.incidents.resolve(self.only, "recovered", "back on its path", step=step, entry=self.entry)


@pytest.fixture
def case() -> Case:
    """A run with one open, undecided spike from step 100."""
    case = Case()
    case.find(_finding())
    return case


def test_a_first_sign_opens_an_incident() -> None:
    """The incident takes what the finding says, and its id names the entry that opened it."""
    change = Case().find(_finding(step=100, onset_step=98))
    assert change
    incident = change.incident
    assert (change.change, incident.id, incident.state) == ("opened", "run-1.i1", "open")
    assert (incident.onset_step, incident.suspect_from, incident.detected_step) == (98, 98, 100)
    assert (incident.detected_at, incident.opened_sequence, incident.open_symptoms) == (1001.0, 1, ("loss_spike",))


@pytest.mark.parametrize("phase", ["changed", "ended"])
def test_news_of_an_episode_nobody_knows_opens_nothing(phase: str) -> None:
    """Only a beginning opens an incident."""
    assert Case().find(_finding(phase)) is None


def test_a_spike_then_nan_is_one_fault(case: Case) -> None:
    """The second symptom joins the open incident, makes it worse, and moves its suspect step only back."""
    change = case.find(_finding(symptom="nonfinite", step=105, onset_step=105, **MALIGNANT))
    assert change
    assert change.change == "worsened"
    assert case.only.symptom == "loss_spike"
    assert case.only.symptoms == case.only.open_symptoms == ("loss_spike", "nonfinite")
    assert (case.only.severity, case.only.verdict, case.only.suspect_from) == ("critical", "malignant", 100)


def test_a_symptom_that_began_earlier_moves_the_suspect_step_back(case: Case) -> None:
    """A checkpoint to go back to must be older than every symptom's onset."""
    case.find(_finding(symptom="nonfinite", step=105, onset_step=93, **MALIGNANT))
    assert (case.only.onset_step, case.only.suspect_from) == (100, 93)


def test_news_that_are_no_worse_are_a_revision(case: Case) -> None:
    """A finding of the same weight changes the incident's reason and nothing that would call for more."""
    change = case.find(_finding("changed", step=104))
    assert change
    assert (change.change, case.only.severity, case.only.verdict) == ("revised", "warning", "undecided")


def test_another_subject_is_another_fault(case: Case) -> None:
    """What is seen on a node is not part of what is seen of the run."""
    case.find(_finding(subject="node-7"))
    assert len(case.incidents.unsettled) == 2


def test_it_passes_when_its_last_symptom_has_ended(case: Case) -> None:
    """An open incident is over, and benign if undecided, when no detector sees any of it any more."""
    case.find(_finding("began", symptom="nonfinite", step=101))
    assert case.find(_finding("ended", step=110)) is None
    change = case.find(_finding("ended", symptom="nonfinite", step=120))
    assert change
    assert (change.change, case.only.state, case.only.verdict) == ("passed", "resolved", "benign")
    assert (case.only.end_step, case.only.end_at, case.only.resolution) == (120, 1004.0, "nonfinite ended")


def test_what_was_malignant_passes_malignant(case: Case) -> None:
    """The end of a symptom does not excuse what the incident was."""
    case.find(_finding("changed", step=108, **MALIGNANT))
    case.find(_finding("ended", step=200, severity="info", verdict="malignant"))
    assert (case.only.state, case.only.severity, case.only.verdict) == ("resolved", "critical", "malignant")


def test_an_end_does_not_settle_what_is_being_mitigated(case: Case) -> None:
    """Once a rollback is ordered, only the loss's return to its path is the end."""
    case.incidents.mitigate(case.only, case.entry)
    assert case.find(_finding("ended", step=110)) is None
    assert case.only.state == "mitigating"


def test_news_of_a_settled_incident_change_nothing(case: Case) -> None:
    """What a person settled stays settled, though the detector goes on talking about it."""
    case.incidents.resolve(case.only, "settled by a person", "seen", step=104, entry=case.entry)
    for phase in ("changed", "ended"):
        assert case.find(_finding(phase, step=105, **MALIGNANT)) is None


def test_a_second_beginning_in_the_same_segment_is_a_revision(case: Case) -> None:
    """While a rollback is on its way, more symptoms of the same branch are no return of the fault."""
    case.incidents.mitigate(case.only, case.entry)
    change = case.find(_finding(symptom="nonfinite", step=104))
    assert change
    assert (change.change, case.only.state) == ("revised", "mitigating")


def test_a_fault_after_the_rollback_has_recurred(case: Case) -> None:
    """A beginning in the new segment opens the incident again, with its new verdict and onset."""
    case.find(_finding("changed", step=108, **MALIGNANT))
    case.roll_back()
    change = case.find(_finding(step=95, onset_step=93), segment=1)
    assert change
    assert (change.change, case.only.state, case.only.verdict) == ("recurred", "open", "undecided")
    assert (case.only.suspect_from, case.only.onset_step, case.only.segment) == (93, 100, 1)


@pytest.mark.parametrize(("after", "reopened"), [(0, True), (FLICKER_STEPS, True), (FLICKER_STEPS + 1, False)])
def test_a_benign_symptom_reopens_only_if_it_flickers(case: Case, after: int, *, reopened: bool) -> None:
    """What passed by itself and comes back within 16 steps is the same fault; later it has a cause of its own."""
    case.find(_finding("ended", step=120))
    change = case.find(_finding(step=120 + after, onset_step=120 + after))
    assert change
    assert change.change == ("reopened" if reopened else "opened")


@pytest.mark.parametrize(("after", "reopened"), [(0, True), (REOPEN_STEPS, True), (REOPEN_STEPS + 1, False)])
def test_the_same_symptom_soon_after_the_end_reopens(case: Case, after: int, *, reopened: bool) -> None:
    """Within 100 steps of the end of a malignant one it is the same fault; later it is a new one."""
    case.find(_finding("changed", step=108, **MALIGNANT))
    case.resolve(step=120)
    change = case.find(_finding(step=120 + after, onset_step=120 + after, **MALIGNANT))
    assert change
    assert change.change == ("reopened" if reopened else "opened")
    assert len(case.incidents.state.incidents) == (1 if reopened else 2)
    if reopened:
        assert (case.only.state, case.only.end_step, case.only.end_at, case.only.resolution) == ("open", None, None, "")
        assert case.only.suspect_from == 120 + after


def test_another_symptom_soon_after_the_end_is_a_new_fault(case: Case) -> None:
    """A settled incident takes back only what it had."""
    case.resolve(step=120)
    change = case.find(_finding(symptom="nonfinite", step=121))
    assert change
    assert change.change == "opened"


def test_what_happens_before_the_end_step_is_a_new_fault(case: Case) -> None:
    """Steps of a branch that was set back since are not soon after the end."""
    case.resolve(step=120)
    change = case.find(_finding(step=90))
    assert change
    assert change.change == "opened"


def test_costs_add_up_over_rollbacks(case: Case) -> None:
    """Steps and seconds given up are summed, and the last checkpoint is named."""
    case.roll_back(lost_steps=10, lost_s=2.0)
    change = case.roll_back(lost_steps=30, lost_s=5.0)
    assert (case.only.rollbacks, case.only.lost_steps, case.only.lost_s) == (2, 40, 7.0)
    assert (case.only.checkpoint, case.only.open_symptoms, case.only.state) == (CHECKPOINT, (), "mitigating")
    assert "30 steps given up" in change.reason


def test_what_did_not_help_opens_it_again(case: Case) -> None:
    """A failed action leaves an open incident."""
    case.incidents.mitigate(case.only, case.entry)
    assert case.incidents.failed(case.only, "action failed", "no such file", case.entry).incident.state == "open"


def test_acknowledging_changes_no_state(case: Case) -> None:
    """Somebody looks after it; it is as open as before."""
    case.incidents.acknowledge(case.only, "ada")
    assert (case.only.acknowledged_by, case.only.state) == ("ada", "open")


def test_settled_incidents_are_forgotten_in_the_end() -> None:
    """The newest settled ones are remembered, and every unsettled one."""
    case = Case()
    case.find(_finding(subject="node-0"))
    for number in range(1, KEPT + 20):
        change = case.find(_finding(subject=f"node-{number}"))
        assert change
        case.incidents.resolve(change.incident, "passed", "x", step=1, entry=case.entry)
    assert len(case.incidents.state.incidents) == KEPT + 1
    assert [each.subject for each in case.incidents.unsettled] == ["node-0"]
