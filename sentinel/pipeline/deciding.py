"""From changes of incidents to decisions, orders, alerts and notices; remembers what was ordered and what waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sentinel.checkpoints.catalog import Catalog
from sentinel.checkpoints.selection import Selection, newest, select
from sentinel.domain.actions import Action, ActionChange
from sentinel.domain.decisions import Decision, Rung
from sentinel.domain.findings import Severity
from sentinel.domain.incidents import Incident
from sentinel.domain.log_entry import LogEntry
from sentinel.domain.runs import Run
from sentinel.incidents.lifecycle import IncidentChange, Incidents
from sentinel.pipeline.launchers import Launchers
from sentinel.pipeline.ordering import restart_order, rollback_order
from sentinel.pipeline.outcome import Outcome
from sentinel.pipeline.telling import alert_action, notice_of
from sentinel.policy.announce import AlertStatus, announcement
from sentinel.policy.decide import Choice, decide
from sentinel.policy.limits import RefusalKind, Situation
from sentinel.policy.rules import Policy, recorded_policy
from sentinel.protocol.codec import to_tree
from sentinel.protocol.commands import DumpStacks, Notice, RollBack
from sentinel.protocol.ids import ActionId, CommandId, DecisionId, IncidentId
from sentinel.protocol.launching import is_launcher
from sentinel.protocol.observations import Heartbeat

NOTICES_KEPT: Final = 16
ROLLBACKS_KEPT: Final = 64


@dataclass(slots=True)
class Order:
    """A rollback that the agent has not answered for."""

    incident: IncidentId
    command: RollBack


@dataclass(slots=True)
class DecidingState:
    """What has been ordered, refused and told."""

    policy: str = ""
    orders: dict[CommandId, Order] = field(default_factory=dict)
    waiting: dict[IncidentId, RefusalKind] = field(default_factory=dict)
    """Incidents whose decision a limit withheld, to be asked again when it is lifted."""
    failed_orders: dict[IncidentId, int] = field(default_factory=dict)
    told: dict[IncidentId, AlertStatus] = field(default_factory=dict)
    told_severity: dict[IncidentId, Severity] = field(default_factory=dict)
    rollback_steps: list[int] = field(default_factory=list)
    worked_steps: int = 0
    would_have: dict[IncidentId, int] = field(default_factory=dict)
    """Step at which observing withheld an incident's first rollback."""
    notices: list[Notice] = field(default_factory=list)
    notice_count: int = 0


class Deciding:
    """The decisions of one run."""

    def __init__(self, incidents: Incidents, catalog: Catalog, launchers: Launchers) -> None:
        self.state = DecidingState()
        self._launchers = launchers
        self._incidents = incidents
        self._catalog = catalog
        self._policy = Policy()
        self._policy_text = ""

    @property
    def policy(self) -> Policy:
        """The policy in force; before any is known it only observes."""
        if self._policy_text != self.state.policy:
            self._policy = recorded_policy(self.state.policy)
            self._policy_text = self.state.policy
        return self._policy

    def notices_after(self, sequence: int) -> tuple[Notice, ...]:
        """News for the person at the training's terminal."""
        return tuple(notice for notice in self.state.notices if notice.sequence > sequence)

    def decide(self, change: IncidentChange, run: Run, entry: LogEntry, outcome: Outcome) -> None:
        """Takes one decision about a changed incident and plans what follows from it."""
        incident = change.incident
        self.state.waiting.pop(incident.id, None)
        selection = self._select(incident)
        self._ask_for_stacks(change, run, entry, outcome)
        choice = self._choose(change, run, entry, selection)
        if choice.outcome == "would_have":
            choice = self._once(choice, incident, run)
        if choice.refused is not None and choice.refused.passes:
            self.state.waiting[incident.id] = choice.refused.kind
        self.conclude(change, choice, selection=selection, run=run, entry=entry, outcome=outcome)

    def conclude(
        self,
        change: IncidentChange,
        choice: Choice,
        *,
        selection: Selection,
        run: Run,
        entry: LogEntry,
        outcome: Outcome,
    ) -> None:
        """Records a choice as the decision about a changed incident, and plans what follows from it."""
        incident = change.incident
        target = selection.target if choice.rung in ("rollback", "restart") else None
        action: Action | None = None
        if choice.outcome == "ordered" and choice.rung in ("rollback", "restart"):
            command = CommandId(f"{entry.run}.a{entry.sequence}.{len(outcome.actions)}")
            if choice.rung == "restart":
                attempt = self._launchers.state.standing.attempt
                action = self._launchers.order(restart_order(command, incident, run, attempt=attempt, target=target))
            else:
                assert target is not None  # else it had been refused
                expires_after_steps = self.policy.limits.expires_after_steps
                action = self._order(
                    rollback_order(
                        command,
                        incident,
                        run,
                        target=target,
                        rule=choice.rule,
                        expires_after_steps=expires_after_steps,
                    )
                )
            outcome.actions.append(action)
            incident = self._incidents.mitigate(incident, entry)
        elif choice.rung == "escalate" and incident.state != "escalated":
            incident = self._incidents.escalate(incident, entry)
        decision = Decision(
            id=DecisionId(f"{entry.run}.d{entry.sequence}.{len(outcome.decisions)}"),
            incident=incident.id,
            sequence=entry.sequence,
            at=entry.received_at,
            step=run.step,
            change=change.change,
            rule=choice.decided_by,
            rung=choice.rung,
            outcome=choice.outcome,
            reason=choice.reason,
            checkpoint=target.id if target else None,
            target_step=target.step if target else None,
            passed_over=selection.passed_over if target else (),
            action=action.id if action else None,
        )
        outcome.incidents.append(incident)
        outcome.decisions.append(decision)
        self._tell(incident, decision, entry, outcome)
        if not incident.is_open:
            self.withdraw("the incident is settled", outcome, incident=incident.id)
            self._launchers.withdraw("the incident is settled", outcome, incident=incident.id)
            self.state.failed_orders.pop(incident.id, None)
            self.state.told.pop(incident.id, None)
            self.state.told_severity.pop(incident.id, None)
            self.state.would_have.pop(incident.id, None)

    def lifted(self, run: Run, entry: LogEntry) -> Iterator[Incident]:
        """Incidents whose decision was withheld by a limit that no longer stands in the way."""
        for incident_id, kind in list(self.state.waiting.items()):
            incident = self._incidents.get(incident_id)
            if incident is None or not incident.is_open:
                del self.state.waiting[incident_id]
            elif self._is_lifted(kind, incident, run, entry):
                yield incident

    def settle(self, command: CommandId, *, failed: bool) -> Order | None:
        """An order was answered; returns it, or None if it was not known."""
        order = self.state.orders.pop(command, None)
        if order is not None and failed:
            self.count_failure(order.incident)
        return order

    def count_failure(self, incident: IncidentId) -> None:
        """An order for an incident was not carried out."""
        self.state.failed_orders[incident] = self.state.failed_orders.get(incident, 0) + 1

    def remember_rollback(self) -> None:
        """A rollback was carried out: it counts towards the cooldown and the budget."""
        self.state.rollback_steps = [*self.state.rollback_steps, self.state.worked_steps][-ROLLBACKS_KEPT:]

    def overdue(self, step: int) -> list[CommandId]:
        """Orders that the agent should have carried out by ``step``."""
        return [command for command, order in self.state.orders.items() if step > order.command.expires_step]

    def withdraw(self, reason: str, outcome: Outcome, *, incident: IncidentId | None = None) -> None:
        """Makes orders void: those of an incident that is settled, or all where their attempt is over."""
        for command, order in list(self.state.orders.items()):
            if incident in (None, order.incident):
                del self.state.orders[command]
                outcome.action_changes.append(ActionChange(ActionId(command), "expire", reason))

    def _choose(self, change: IncidentChange, run: Run, entry: LogEntry, selection: Selection) -> Choice:
        policy = self.policy
        incident = change.incident
        if not incident.is_open or change.change in ("rolled back", "started again"):
            rule = policy.rule_for(incident)
            rung: Rung = "watch" if incident.is_open else "none"
            return Choice(rule=rule, rung=rung, outcome="nothing", reason=change.reason)
        if change.change == "below its path":  # another checkpoint would see the same data again
            return Choice(rule=policy.rule_for(incident), rung="escalate", outcome="ordered", reason=change.reason)
        return decide(incident, self.situation(run, entry, selection, incident=incident))

    def situation(
        self, run: Run, entry: LogEntry, selection: Selection, *, incident: Incident | None = None
    ) -> Situation:
        """All that limits look at."""
        return Situation(
            run=run,
            policy=self.policy,
            selection=selection,
            backlog=_is_history(incident, run, entry),
            rollback_steps=self.state.rollback_steps,
            restart_steps=self._launchers.state.restart_steps,
            no_restart=self._launchers.why_no_restart(run.attempt),
            launcher_acts=self._launchers.state.standing.can_restart,
            awaits_stacks=self._launchers.awaits_stacks,
            failed_orders=0 if incident is None else self.state.failed_orders.get(incident.id, 0),
            worked_steps=self.state.worked_steps,
        )

    def _once(self, choice: Choice, incident: Incident, run: Run) -> Choice:
        """What is done for an incident is done once: with it done, the rest would not have been."""
        since = self.state.would_have.setdefault(incident.id, run.step)
        if since == run.step:
            return choice
        reason = f"it would have been done at step {since} already"
        return Choice(rule=choice.rule, rung="watch", outcome="nothing", reason=reason)

    def _select(self, incident: Incident) -> Selection:
        if incident.is_of_process:
            return newest(self._catalog.checkpoints)
        return select(self._catalog.checkpoints, incident.suspect_from)

    def _order(self, command: RollBack) -> Action:
        self.state.orders[command.id] = Order(incident=command.incident, command=command)
        return Action(
            id=ActionId(command.id), incident=command.incident, executor="trainer_command", payload=to_tree(command)
        )

    def _ask_for_stacks(self, change: IncidentChange, run: Run, entry: LogEntry, outcome: Outcome) -> None:
        """Where a training hangs is to be known before anything is done to it, and in observe mode too."""
        incident = change.incident
        if change.change not in ("opened", "reopened", "recurred") or "hang" not in incident.open_symptoms:
            return
        command = CommandId(f"{entry.run}.a{entry.sequence}.{len(outcome.actions)}")
        if entry.backlog or not self._launchers.has_launcher(run.attempt):
            return
        order = DumpStacks(id=command, incident=incident.id, reason=incident.reason)
        heard = isinstance(entry.observation, Heartbeat)
        outcome.actions.append(self._launchers.ask_for_stacks(order, heard=heard))

    def _is_lifted(self, kind: RefusalKind, incident: Incident, run: Run, entry: LogEntry) -> bool:
        if kind == "hold":
            return not run.hold
        if kind == "backlog":
            stands_by = "crash" not in incident.open_symptoms or is_launcher(entry.sender)  # by now it may have left
            return stands_by and not _is_history(incident, run, entry)
        if kind == "stacks":
            return not self._launchers.awaits_stacks
        if kind == "cooldown":
            since = self.state.worked_steps - self.state.rollback_steps[-1]
            return since >= self.policy.limits.cooldown_steps
        return self._select(incident).target is not None

    def _tell(self, incident: Incident, decision: Decision, entry: LogEntry, outcome: Outcome) -> None:
        alert = announcement(incident, decision, self.state.told.get(incident.id), self.policy.alerts)
        if alert is not None:
            self.state.told[incident.id] = alert.status
            number = len(outcome.actions)
            before = self.state.told_severity.get(incident.id, incident.severity)
            self.state.told_severity[incident.id] = incident.severity
            action = alert_action(incident, decision, entry, alert, number=number, told_severity=before)
            outcome.actions.append(action)
        if incident.severity != "info" and not entry.backlog:
            self.state.notice_count += 1
            notice = notice_of(incident, decision, sequence=self.state.notice_count)
            self.state.notices = [*self.state.notices, notice][-NOTICES_KEPT:]


def _is_history(incident: Incident | None, run: Run, entry: LogEntry) -> bool:
    if incident is not None and incident.is_of_process:  # the dead do not go on, and what hangs was behind when it did
        return entry.backlog or (run.blind and "crash" not in incident.open_symptoms)
    return entry.backlog or run.behind or run.blind
