"""What is ordered of an agent or a launcher, in full."""

from __future__ import annotations

from sentinel.checkpoints.catalog import MARGIN_STEPS
from sentinel.domain.checkpoints import Checkpoint
from sentinel.domain.incidents import Incident
from sentinel.domain.runs import Run
from sentinel.policy.rules import Rule
from sentinel.protocol.commands import Restart, RollBack
from sentinel.protocol.ids import AttemptId, CommandId
from sentinel.protocol.observations import DataMode


def rollback_order(
    command: CommandId, incident: Incident, run: Run, *, target: Checkpoint, rule: Rule, expires_after_steps: int
) -> RollBack:
    """To the agent: go back to ``target``. With exact data what the fault's steps took is skipped."""
    data: DataMode = "exact" if rule.data == run.rollback == "exact" else "forward"
    return RollBack(
        id=command,
        incident=incident.id,
        checkpoint=target.id,
        digest=target.digest,
        step=target.step,
        segment=run.segment,
        expires_step=run.step + expires_after_steps,
        data=data,
        skip_from_step=max(target.step + 1, incident.suspect_from - MARGIN_STEPS) if data == "exact" else 0,
        skip_to_step=run.step if data == "exact" else 0,
        lr_scale=rule.lr_scale,
        reason=incident.reason,
    )


def restart_order(
    command: CommandId, incident: Incident, run: Run, *, attempt: AttemptId, target: Checkpoint | None
) -> Restart:
    """To the launcher: start the training again from ``target``, or as the script begins by itself."""
    return Restart(
        id=command,
        incident=incident.id,
        attempt=attempt,
        checkpoint=None if target is None else target.id,
        digest="" if target is None else target.digest,
        step=0 if target is None else target.step,
        after_step=run.step,
        reason=incident.reason,
    )
