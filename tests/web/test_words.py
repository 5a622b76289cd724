from __future__ import annotations

from typing import Any

import pytest

from sentinel.detectors.roster import ROSTER
from sentinel.web import words

INCIDENT: dict[str, Any] = {
    "symptom": "loss_spike",
    "subject": "run",
    "state": "open",
    "onset_step": 7,
    "rollbacks": 0,
    "lost_steps": 0,
    "lost_s": 0.0,
    "resolution": "",
    "reason": "loss 9 at step 7",
    "node": "",
}
RUN: dict[str, Any] = {"phase": "training", "held_by": ""}
DECISION: dict[str, Any] = {"rung": "rollback", "outcome": "ordered", "target_step": 3, "reason": "because"}


def test_every_detector_has_words() -> None:
    """What a detector can raise has words; a detector is named after its symptom or its family."""
    for detector in ROSTER:
        assert any(name.startswith(detector.name) for name in words.SYMPTOMS), detector.name


def test_a_symptom_without_words_is_told_by_its_name() -> None:
    """A fault of a later release is not hidden and breaks nothing."""
    assert words.sentence(INCIDENT | {"symptom": "quantum_flux"}) == (
        "From step 7 on Sentinel saw: quantum flux; it is not over."
    )


def test_a_fault_of_one_rank_or_machine_names_it() -> None:
    """What an incident is about stands in its sentence where that is not the whole run."""
    told = words.sentence(INCIDENT | {"symptom": "straggler", "subject": "rank 3", "node": "n7"})
    assert "one rank needed longer for its own work than the others (rank 3) on node n7;" in told


def test_what_was_done_and_lost_is_in_the_sentence() -> None:
    """Rollbacks and restarts are counted, with what they cost."""
    told = words.sentence(INCIDENT | {"symptom": "crash", "subject": "process", "restarts": 2, "lost_steps": 9})
    assert "a training process was dead; the run began anew 2 times, giving up 9 steps (0.0 s); it is not over." in told


@pytest.mark.parametrize(
    ("incident", "run", "decisions", "told"),
    [
        ({"state": "resolved"}, {}, [DECISION], "Nothing: it is over"),
        ({}, {"phase": "finished"}, [DECISION], "The run is finished"),
        ({}, {"held_by": "ada"}, [DECISION], "while ada holds the run"),
        ({"state": "escalated"}, {}, [DECISION | {"reason": "the budget is spent"}], "the budget is spent"),
        ({"state": "escalated"}, {}, [], "loss 9 at step 7"),
        ({"state": "mitigating"}, {}, [DECISION], "the trainer has not answered yet"),
        ({"state": "mitigating"}, {}, [DECISION | {"outcome": "nothing"}], "Wait: the run was rolled back"),
        ({}, {}, [], "Nothing yet"),
        ({}, {}, [DECISION | {"rung": "watch", "outcome": "nothing"}], "Nothing yet"),
        ({}, {}, [DECISION | {"outcome": "would_have"}], "would have chosen to roll back to step 3,"),
        ({}, {}, [DECISION | {"outcome": "withheld", "reason": "cooldown"}], "was not allowed to: cooldown."),
        ({}, {}, [DECISION], "Sentinel chose to roll back to step 3 (ordered): because."),
    ],
)
def test_the_person_on_call_is_told_what_to_do(
    incident: dict[str, Any], run: dict[str, Any], decisions: list[dict[str, Any]], told: str
) -> None:
    """Each state of an incident has its next step, with the reason where there is one."""
    assert told in words.next_step(INCIDENT | incident, RUN | run, decisions)
