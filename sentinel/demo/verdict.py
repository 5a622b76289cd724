"""Reads back from the REST API what became of each injected fault, and judges it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sentinel.client import Client

Document = dict[str, Any]
_WAYS = {"rollback": "to", "restart": "from"}


@dataclass(slots=True)
class Judged:
    """One injected fault and what Sentinel made of it."""

    fault: str
    injected_step: int
    problem: str | None = None
    """Why the demo fails; None if all went well."""
    incident: str | None = None
    found_after_steps: int | None = None
    found_after_s: float | None = None
    decision: str = ""
    reason: str = ""
    checkpoint: str = ""
    passed_over: list[str] = field(default_factory=list)
    back_at_step: int | None = None
    lost_steps: int = 0
    lost_s: float = 0.0


@dataclass(slots=True)
class Verdict:
    """The whole demo's."""

    run: str
    faults: list[Judged]
    problems: list[str]
    steps: int
    loss: float | str | None

    @property
    def passed(self) -> bool:
        """Every fault found, rightly acted on and recovered from, and nothing else acted on."""
        return not self.problems and all(fault.problem is None for fault in self.faults)

    def tree(self) -> Document:
        """For JSON."""
        return {"passed": self.passed, **asdict(self)}


def judge(client: Client, run: str, faults: list[Document]) -> Verdict:
    """Matches each fault with the incident that was found between it and the next one.

    Args:
        client: of the daemon.
        run: the run's name.
        faults: what the trainer noted as it injected: kind, step, data_step, at (Unix seconds).
    """
    summary = client.get(f"/v1/runs/{run}")
    incidents = [
        client.get(f"/v1/incidents/{each['id']}") for each in client.pages("/v1/incidents", "incidents", run=run)
    ]
    incidents.reverse()
    judged: list[Judged] = []
    matched: set[str] = set()
    for fault in faults:
        later = (each["at"] for each in faults if each["data_step"] > fault["data_step"])
        end = min(later, default=float("inf"))
        incident = next((each for each in incidents if fault["at"] <= each["detected_at"] < end), None)
        if incident is not None:
            matched.add(incident["id"])
        row = _judge_flip if fault["kind"] == "flip_checkpoint" else _judge_fault
        judged.append(row(fault, incident))
    problems = [
        f"incident {each['id']} has no fault: {each['reason']}" for each in incidents if each["id"] not in matched
    ]
    if summary["phase"] != "finished":
        problems.append(f"the run did not finish: it is {summary['phase']}")
    return Verdict(run, judged, problems, summary["step"], summary.get("loss"))


def _judge_fault(fault: Document, incident: Document | None) -> Judged:
    judged = Judged(fault=fault["kind"], injected_step=fault["step"])
    if incident is None:
        judged.problem = "missed"
        return judged
    acts = [
        each
        for each in incident["decisions"]
        if each["rung"] in ("rollback", "restart") and each["outcome"] == "ordered"
    ]
    judged.incident = incident["id"]
    judged.found_after_steps = max(0, incident["detected_step"] - fault["step"])
    judged.found_after_s = incident["detected_at"] - fault["at"]
    judged.lost_steps, judged.lost_s = incident["lost_steps"], incident["lost_s"]
    if not acts:
        judged.problem = "found, and not acted on"
        return judged
    last = acts[-1]
    judged.decision = f"{last['rung']} {_WAYS[last['rung']]} step {last.get('target_step', 0)}"
    judged.reason, judged.checkpoint = last["reason"], last.get("checkpoint", "none")
    judged.passed_over = [f"step {each['step']}: {each['why']}" for each in last.get("passed_over", ())]
    if incident["state"] == "resolved" and (incident["rollbacks"] or incident["restarts"]):
        judged.back_at_step = incident["end_step"]
    else:
        judged.problem = f"not recovered: the incident is {incident['state']}"
    return judged


def _judge_flip(fault: Document, incident: Document | None) -> Judged:
    """The broken checkpoint must have been refused, and the order after that have gone to an older one."""
    judged = Judged(fault=fault["kind"], injected_step=fault["step"])
    decisions = [] if incident is None else incident["decisions"]
    failed = [each for each in decisions if each["change"] == "action failed" and each["rung"] == "rollback"]
    again = next((each for each in failed if _broken(each)), None)
    if incident is None or again is None:
        judged.problem = "the broken checkpoint was not noticed"
        return judged
    judged.incident = incident["id"]
    judged.found_after_steps = again["step"] - fault["step"]
    judged.found_after_s = again["at"] - fault["at"]
    judged.decision = f"rollback to step {again['target_step']}, for that of step {_broken(again)[0]['step']} is broken"
    judged.reason, judged.checkpoint = again["reason"], again["checkpoint"]
    judged.passed_over = [f"step {each['step']}: {each['why']}" for each in again["passed_over"]]
    judged.back_at_step = incident["end_step"]
    return judged


def _broken(decision: Document) -> list[Document]:
    return [each for each in decision.get("passed_over", ()) if each["why"].startswith("bad")]
