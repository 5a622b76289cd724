from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sentinel.protocol.observations import Mode, StepReport
from sentinel.protocol.processes import RankReport
from sentinel_agent.rank_tally import INTERVAL_S, RankTally
from tests.fakes import FakeDaemon
from tests.trainer.sentinel_agent.replaying import SLOW_S, Plan, read, start

MODES: tuple[Mode, ...] = ("observe", "act", "off")
STEP = StepReport(at=0.0, step=1, loss=2.0, step_s=0.5, data_wait_s=0.1)


def test_a_report_is_the_mean_of_the_steps() -> None:
    """Ten seconds of steps become one report; a step whose work is not known does not count as none."""
    tally = RankTally(3, "GPU-1")
    assert tally.due(1000.0) is None
    tally.take(STEP, 0.25, 1000.0)
    tally.take(replace(STEP, step=2, loss=math.nan, step_s=1.5), None, 1001.0)
    tally.take(replace(STEP, step=3, loss=4.0, batch_fingerprint="abc"), 0.75, 1002.0)
    assert tally.due(1000.0 + INTERVAL_S - 0.1) is None
    told = tally.due(1000.0 + INTERVAL_S)
    assert told is not None
    assert replace(told, at=0.0) == RankReport(
        at=0.0,
        rank=3,
        step=3,
        steps=3,
        host=os.uname().nodename,
        device_uuid="GPU-1",
        step_s=pytest.approx(2.5 / 3),
        step_max_s=1.5,
        work_s=0.5,
        data_wait_s=pytest.approx(0.1),
        loss=3.0,
        nonfinite=1,
        batch_fingerprint="abc",
    )
    assert tally.rest() is None


def test_an_abandoned_branch_is_not_told() -> None:
    """After a rollback a report begins anew, in the new segment."""
    tally = RankTally(0, "")
    tally.take(replace(STEP, step=9), 0.2, 0.0)
    tally.take(replace(STEP, step=5, segment=1), 0.2, 1.0)
    told = tally.rest()
    assert told is not None
    assert (told.segment, told.step, told.steps) == (1, 5, 1)


def _train(plan: Plan) -> list[list[str]]:
    """Every rank's losses."""
    assert [each.wait(timeout=100) for each in start(plan)] == [0] * plan.ranks
    return [[each.loss for each in read(plan, rank)] for rank in range(plan.ranks)]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_rank_tells_of_its_own_work(tmp_path: Path) -> None:
    """Under DDP all ranks' steps take the same time, and the slow one is told apart by its own work.

    No rank but the first tells steps. Observing ranks do so as well as acting ones, and what is computed is the same.
    """
    losses = []
    for mode in MODES:
        plan = Plan(str(tmp_path / mode), ranks=2, max_steps=8, mode=mode, slow_rank=1)
        with FakeDaemon() as daemon:
            losses.append(_train(replace(plan, url=daemon.url)))
            reports = {report.rank: report for report in daemon.told(RankReport)}
            told = [each.step for each in daemon.told(StepReport)]
            senders = {(batch.sender, batch.attempt) for batch in daemon.batches}
        if mode == "off":
            assert (reports, told) == ({}, [])
            continue
        assert {sender for sender, _ in senders} == {"rank-0", "rank-1"}
        assert len(senders) == 2
        assert told == list(range(1, 9))
        first, second = reports[0], reports[1]
        assert (first.steps, second.steps, second.step) == (8, 8, 8)
        assert first.work_s is not None
        assert second.work_s is not None
        assert first.step_s is not None
        assert min(second.work_s, first.step_s) > SLOW_S > first.work_s
    assert losses[0] == losses[1] == losses[2]
