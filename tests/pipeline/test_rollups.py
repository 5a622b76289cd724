from __future__ import annotations

from math import inf, isfinite, nan

from hypothesis import given
from hypothesis import strategies as st

from sentinel.pipeline.rollups import EXTRA_SERIES_KEPT, WIDTHS, Rollup, Rollups
from sentinel.protocol.observations import StepReport
from tests.builders import ATTEMPT, steps_of

VALUES = st.lists(st.sampled_from([nan, inf, -inf, 1.0]) | st.floats(-1e6, 1e6), min_size=1, max_size=600)


def _rolled(losses: list[float]) -> list[Rollup]:
    rollups = Rollups()
    done = [
        each
        for report in steps_of(losses)
        for each in rollups.take(StepReport(at=0.0, step=report.step, loss=report.loss), report.step, ATTEMPT)
    ]
    return done + rollups.flush()


@given(losses=VALUES)
def test_buckets_tell_what_their_reports_told(losses: list[float]) -> None:
    """At each level every report is in one bucket, whose extremes, last, sum and counts are those of its reports."""
    for level, width in enumerate(WIDTHS):
        buckets = [each for each in _rolled(losses) if each.level == level]
        assert sum(each.count for each in buckets) == len(losses)
        assert [each.count for each in buckets[:-1]] == [width] * (len(buckets) - 1)
        for bucket in buckets:
            values = losses[bucket.first_step - 1 : bucket.last_step]
            finite = [value for value in values if isfinite(value)]
            assert (bucket.count, bucket.nonfinite) == (len(values), len(values) - len(finite))
            assert bucket.first_sequence == bucket.first_step
            assert bucket.minimum == min(finite, default=None)
            assert bucket.maximum == max(finite, default=None)
            assert bucket.last == (finite[-1] if finite else None)
            assert abs(bucket.total - sum(finite)) <= 1e-6 * (1.0 + sum(map(abs, finite)))


def test_each_series_has_its_own_buckets() -> None:
    """Known readings and the user's own series are rolled up by name; what is not reported has no bucket."""
    rollups = Rollups()
    rollups.take(StepReport(at=0.0, step=1, loss=2.0, tokens=7, extra={"accuracy": 0.5}), 1, ATTEMPT)
    buckets = {each.series: each.last for each in rollups.flush() if each.level == 0}
    assert buckets == {"loss": 2.0, "tokens": 7.0, "extra.accuracy": 0.5}


def test_after_a_flush_nothing_is_left() -> None:
    """A segment's last buckets are closed with it."""
    rollups = Rollups()
    rollups.take(StepReport(at=0.0, step=1, loss=2.0), 1, ATTEMPT)
    assert rollups.flush()
    assert rollups.flush() == []
    assert rollups.state.buckets == {}


def test_names_made_anew_with_each_step_do_not_fill_the_memory() -> None:
    """Of the user's own series the first 64 names of a run are kept."""
    rollups = Rollups()
    for step in range(1, 1001):
        rollups.take(StepReport(at=0.0, step=step, loss=1.0, extra={f"name-{step}": 1.0}), step, ATTEMPT)
    assert len(rollups.state.extras) == EXTRA_SERIES_KEPT
    assert len(rollups.state.buckets) <= 3 * (EXTRA_SERIES_KEPT + 1)
