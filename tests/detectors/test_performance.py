"""Behaviour of the detectors of speed: slow steps, stalled data, ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sentinel.detectors.data_stall import DataStall
from sentinel.detectors.straggler import RANKS_KEPT, Straggler
from sentinel.detectors.throughput_drop import ThroughputDrop
from sentinel.domain.findings import Finding
from sentinel.protocol.observations import Observation, StepReport
from sentinel.protocol.processes import RankReport
from tests.builders import ROLLED_BACK, STARTED, around, findings_of

USUAL = around(4.0, 160, noise=0.1)


def _steps(
    times: Sequence[float], *, first_step: int = 1, tokens: int = 4096, waiting: float = 0.1
) -> list[Observation]:
    return [
        StepReport(at=0.0, step=step, step_s=step_s, data_wait_s=waiting * step_s, tokens=tokens)
        for step, step_s in enumerate(times, start=first_step)
    ]


def _told(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(each.phase, each.severity) for each in found]


def _round(number: int, own_s: Sequence[float], **given: float) -> list[Observation]:
    return [
        RankReport(
            at=0.0,
            rank=rank,
            step=10 * number,
            steps=10,
            host=f"n{rank}",
            step_s=0.5,
            work_s=work_s,
            **given,  # type: ignore[arg-type]
        )
        for rank, work_s in enumerate(own_s)
    ]


def _rounds(count: int, own_s: Sequence[float], *, first: int = 1) -> list[Observation]:
    return [each for number in range(first, first + count) for each in _round(number, own_s)]


def test_a_lasting_drop_is_told_with_its_onset_and_its_end() -> None:
    """Steps that take 1.5 times as long are a warning within two blocks and a half, and it ends when they are back."""
    slow = around(6.0, 64, noise=0.1, seed=1)
    found = findings_of(ThroughputDrop(), _steps([*USUAL, *slow, *around(4.0, 64, noise=0.1, seed=2)]))
    assert _told(found) == [("began", "warning"), ("ended", "info")]
    assert 160 - 16 < found[0].onset_step <= 176
    assert found[0].step <= 160 + 40
    assert found[0].evidence["ratio"] == pytest.approx(1.5, rel=0.05)


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([60.0 if step % 25 == 0 else 4.0 for step in range(800)], id="a checkpoint every 25 steps"),
        pytest.param([9.0 if step % 2 else 4.0 for step in range(800)], id="every other batch is long"),
        pytest.param([90.0 - step * 5 for step in range(16)] + [4.0] * 800, id="compilation at the start"),
        pytest.param([*USUAL, *[4.5] * 400], id="a little slower"),
        pytest.param([0.004] * 200 + [0.04] * 1000, id="ten times slower for less than a minute"),
        pytest.param([4.0 + 0.0004 * step for step in range(8000)], id="a slow growth"),
    ],
)
def test_what_is_no_drop_stays_unsaid(times: Sequence[float]) -> None:
    """Single slow steps, noise of two kinds, a start, small and short slowness and slow growth are no findings."""
    assert findings_of(ThroughputDrop(), _steps(times)) == []


def test_larger_steps_are_no_drop() -> None:
    """A step that takes twice as long over twice the tokens is the new usual, against which a drop is seen again."""
    larger = [*around(8.0, 160, noise=0.1, seed=1), *around(14.0, 64, noise=0.1, seed=2)]
    found = findings_of(ThroughputDrop(), [*_steps(USUAL), *_steps(larger, first_step=161, tokens=8192)])
    assert _told(found) == [("began", "warning")]
    assert found[0].onset_step > 300


def test_a_new_attempt_has_its_own_speed() -> None:
    """A start on slower machines is no drop."""
    assert findings_of(ThroughputDrop(), [*_steps(USUAL), STARTED, *_steps(around(9.0, 300), first_step=161)]) == []


def test_a_drop_outlasts_a_rollback() -> None:
    """The machines are as slow after a rollback: the episode goes on, and its end is told, at a step that has been."""
    found = findings_of(
        ThroughputDrop(), [*_steps([*USUAL, *[6.0] * 64]), ROLLED_BACK, *_steps([*[6.0] * 32, *[4.0] * 32])]
    )
    assert [each.phase for each in found] == ["began", "ended"]
    assert found[1].onset_step <= found[1].step < 100


def test_a_stall_is_told_until_the_loader_keeps_up() -> None:
    """A training that waits for two thirds of its time is a warning; a tenth is none, and ends it."""
    found = findings_of(
        DataStall(),
        [
            *_steps([4.0] * 64),
            *_steps([12.0] * 64, first_step=65, waiting=0.67),
            *_steps([4.0] * 64, first_step=129),
        ],
    )
    assert [(each.step, *told) for each, told in zip(found, _told(found), strict=True)] == [
        (96, "began", "warning"),
        (144, "ended", "info"),
    ]
    assert found[0].onset_step == 65
    assert "67%" in found[0].reason


def test_the_start_of_an_epoch_is_no_stall() -> None:
    """One long wait in a hundred steps is none, though its block waits more than it works."""
    waits = [
        StepReport(at=0.0, step=step, step_s=900.0 if step % 100 == 0 else 4.0, data_wait_s=896.0 * (step % 100 == 0))
        for step in range(1, 1000)
    ]
    assert findings_of(DataStall(), waits) == []


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_a_straggler_is_named(ranks: int) -> None:
    """The last rank, half as slow again, is told once after three rounds with rank and host, and its end too."""
    slow = [0.2] * (ranks - 1) + [0.3]
    found = findings_of(
        Straggler(), [*_rounds(5, [0.2] * ranks), *_rounds(8, slow, first=6), *_rounds(6, [0.2] * ranks, first=14)]
    )
    assert _told(found) == [("began", "warning"), ("ended", "info")]
    assert (found[0].subject, found[0].node) == (f"rank {ranks - 1}", f"n{ranks - 1}")
    assert (found[0].onset_step, found[0].step) == (51, 90)


@pytest.mark.parametrize(
    ("count", "own_s"),
    [
        pytest.param(9, [0.4] * 8, id="all are slow"),
        pytest.param(9, [0.5], id="one rank"),
        pytest.param(9, [0.2] * 7 + [0.25], id="a quarter slower"),
        pytest.param(9, [0.010] * 7 + [0.020], id="a little work"),
        pytest.param(2, [0.2] * 7 + [0.9], id="two rounds"),
        pytest.param(9, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], id="all differ"),
    ],
)
def test_what_is_no_straggler_stays_unsaid(count: int, own_s: Sequence[float]) -> None:
    """Ranks that are slow together, alone, little, briefly, or for next to nothing of the step are none."""
    assert findings_of(Straggler(), [*_rounds(count, own_s), *_rounds(1, [0.2] * len(own_s), first=count + 1)]) == []


def test_a_rank_that_waits_for_its_own_data_is_a_straggler() -> None:
    """The others wait for its loader as they would for its device, and the reason says so."""
    reports = [
        RankReport(at=0.0, rank=rank, step=10 * n, steps=10, step_s=1.0, work_s=0.2, data_wait_s=0.5 if rank else 0.01)
        for n in range(1, 6)
        for rank in range(2)
    ]
    (found,) = findings_of(Straggler(), reports)
    assert found.subject == "rank 1"
    assert "waiting for data" in found.reason


def test_a_rank_without_reports_is_not_waited_for() -> None:
    """Rounds go on with the ranks that report: a silent one is no straggler and hides none."""
    found = findings_of(Straggler(), [*_rounds(1, [0.2, 0.2, 0.2, 0.2]), *_rounds(5, [0.2, 0.2, 0.4], first=2)])
    assert [each.subject for each in found] == ["rank 2"]


def test_ranks_are_kept_up_to_a_number() -> None:
    """Ranks made up without end do not fill the memory."""
    detector = Straggler()
    findings_of(detector, [RankReport(at=0.0, rank=rank, step=1, work_s=0.1) for rank in range(RANKS_KEPT + 10)])
    assert len(detector.state.heard) == RANKS_KEPT
