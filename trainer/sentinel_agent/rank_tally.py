"""What one rank tells of itself every ten seconds: the means of its steps. Used by the agent's thread alone."""

from __future__ import annotations

import math
import os
from time import time
from typing import Final

from sentinel.protocol.observations import StepReport
from sentinel.protocol.processes import RankReport

INTERVAL_S: Final = 10.0


class RankTally:
    """Steps since the last report.

    Args:
        rank: whose.
        device_uuid: the device it trains on; empty if it has none of its own.
    """

    def __init__(self, rank: int, device_uuid: str) -> None:
        self._rank = rank
        self._device_uuid = device_uuid
        self._segment = 0
        self._since: float | None = None
        self._steps: list[StepReport] = []
        self._work_s: list[float] = []

    def take(self, step: StepReport, work_s: float | None, now: float) -> None:
        """Adds a step. What is left of a branch that was abandoned is not told.

        Args:
            step: as rank 0 would report it.
            work_s: the rank's own work in it, where that is known.
            now: monotonic seconds.
        """
        if step.segment != self._segment:
            self._forget()
            self._segment = step.segment
        if self._since is None:
            self._since = now
        self._steps.append(step)
        if work_s is not None:
            self._work_s.append(work_s)

    def due(self, now: float) -> RankReport | None:
        """The report, once its time has come and if there was a step."""
        return self.rest() if self._since is not None and now - self._since >= INTERVAL_S else None

    def rest(self) -> RankReport | None:
        """The report of the steps so far; None if there was none."""
        steps, work_s = self._steps, self._work_s
        self._forget()
        if not steps:
            return None
        losses = [step.loss for step in steps if step.loss is not None]
        times = [step.step_s for step in steps if step.step_s is not None]
        return RankReport(
            at=time(),
            rank=self._rank,
            step=steps[-1].step,
            segment=self._segment,
            steps=len(steps),
            host=os.uname().nodename,
            device_uuid=self._device_uuid,
            step_s=_mean(times),
            step_max_s=max(times, default=None),
            work_s=_mean(work_s),
            data_wait_s=_mean([step.data_wait_s for step in steps if step.data_wait_s is not None]),
            loss=_mean([loss for loss in losses if math.isfinite(loss)]),
            nonfinite=sum(not math.isfinite(loss) for loss in losses),
            batch_fingerprint=steps[-1].batch_fingerprint,
        )

    def _forget(self) -> None:
        self._since, self._steps, self._work_s = None, [], []


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
