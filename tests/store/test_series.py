from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sentinel.engine.writer import Writer
from sentinel.protocol.decoding import MAX_INTEGER
from sentinel.protocol.ids import RunId
from sentinel.protocol.observations import StepReport
from sentinel.store.series import Bucket, Wanted, read_series
from tests.builders import RUN
from tests.daemons import Voice, writing


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A running writer over an empty database."""
    with writing(tmp_path) as writer:
        yield writer


def buckets(
    writer: Writer, name: str = "loss", *, run: str = RUN, first: int = 0, last: int = MAX_INTEGER, points: int = 500
) -> list[Bucket]:
    """The series as the database has it after the next transaction."""
    wanted = Wanted(run=RunId(run), name=name, first_step=first, last_step=last, points=points)
    return writer.write(lambda connection: read_series(connection, wanted)).result(timeout=30)


def test_a_few_reports_come_back_one_by_one(writer: Writer) -> None:
    """Where there are no more reports than points, each is a bucket of its own with the value that was told."""
    voice = Voice(writer)
    voice.start()
    reports = voice.reports(40)
    voice.tell(*reports)
    assert [(each.first_step, each.last, each.count) for each in buckets(writer)] == [
        (report.step, report.loss, 1) for report in reports
    ]


@pytest.mark.parametrize("points", [1, 7, 60, 250])
def test_no_zoom_loses_a_report_or_a_spike(writer: Writer, points: int) -> None:
    """At any number of points each report is in one bucket, in order, and the one spike is some bucket's maximum."""
    voice = Voice(writer)
    voice.start()
    reports = voice.reports(400) + voice.reports(1, loss=9.0) + voice.reports(4400)
    for start in range(0, len(reports), 500):
        voice.tell(*reports[start : start + 500])
    found = buckets(writer, points=points)
    assert len(found) <= points
    assert sum(each.count for each in found) == len(reports)
    assert [each.first_step for each in found] == [1, *(each.last_step + 1 for each in found[:-1])]
    assert found[-1].last_step == len(reports)
    assert max(each.maximum or 0.0 for each in found) == 9.0
    total = math.fsum((each.mean or 0.0) * each.count for each in found)
    assert total == pytest.approx(math.fsum(report.loss or 0.0 for report in reports))


def test_values_that_are_not_finite_are_counted_and_in_no_other_number(writer: Writer) -> None:
    """NaN and infinities leave minimum, mean and maximum to the finite values; a single report tells what it was."""
    voice = Voice(writer)
    voice.start()
    voice.train(8, loss=2.0)
    voice.train(1, loss=math.nan)
    voice.train(1, loss=-math.inf)
    *_, nan, infinite = buckets(writer)
    assert math.isnan(nan.last or 0.0)
    assert (nan.count, nan.nonfinite, nan.minimum, nan.mean, nan.maximum) == (1, 1, None, None, None)
    assert infinite.last == -math.inf
    (together,) = buckets(writer, points=1)
    assert (together.count, together.nonfinite) == (10, 2)
    assert (together.minimum, together.mean, together.maximum, together.last) == (2.0, 2.0, 2.0, 2.0)


@pytest.mark.parametrize("points", [2, 500])
def test_a_rollback_makes_a_second_branch(writer: Writer, points: int) -> None:
    """The steps given up and the same steps walked again are buckets of different segments, never one."""
    voice = Voice(writer)
    voice.ready_to_roll_back()
    (command,) = voice.break_down().commands
    voice.roll_back(command.id, 20)
    voice.train(70)
    found = buckets(writer, points=points)
    assert {each.segment for each in found} == {0, 1}
    first, second = ([each for each in found if each.segment == segment] for segment in (0, 1))
    assert (first[0].first_step, first[-1].last_step, sum(each.count for each in first)) == (1, 81, 81)
    assert (second[0].first_step, second[-1].last_step, sum(each.count for each in second)) == (21, 90, 70)


def test_attempts_with_the_same_segment_are_kept_apart(writer: Writer) -> None:
    """A restarted run begins with segment 0 again: its buckets name the new attempt, and none holds both."""
    first = Voice(writer, attempt="one")
    first.start()
    first.train(100)
    second = Voice(writer, attempt="two")
    second.start()
    second.train(100)
    found = buckets(writer, points=2)
    assert [(each.attempt, each.first_step, each.last_step) for each in found] == [("one", 1, 100), ("two", 1, 100)]


def test_a_range_is_read_finer_than_the_whole(writer: Writer) -> None:
    """Within few enough steps the log itself answers, step for step, ends included."""
    voice = Voice(writer)
    voice.start()
    for _ in range(4):
        voice.train(500)
    assert all(each.count > 1 for each in buckets(writer, points=20)[:-20])
    assert [each.first_step for each in buckets(writer, points=20, first=1001, last=1010)] == list(range(1001, 1011))


def test_a_series_of_the_users_own_is_read_by_its_name(writer: Writer) -> None:
    """``extra.NAME`` reads from the log and from rollups; a report without it is in no bucket."""
    voice = Voice(writer)
    voice.start()
    reports = [
        StepReport(at=0.0, step=step, loss=2.0, extra={"accuracy": step / 100} if step % 2 else {})
        for step in range(1, 101)
    ]
    voice.tell(*reports)
    assert [each.last for each in buckets(writer, "extra.accuracy")] == [step / 100 for step in range(1, 101, 2)]
    merged = buckets(writer, "extra.accuracy", points=3)
    assert sum(each.count for each in merged) == 50
    assert merged[-1].maximum == 0.99


def test_what_was_never_reported_is_empty(writer: Writer) -> None:
    """A known series that no report carried, a range without steps and a run without reports have no buckets."""
    voice = Voice(writer)
    voice.start()
    voice.train(3000 // 500)
    assert buckets(writer, "forward_s") == []
    assert buckets(writer, first=10_000) == []
    assert buckets(writer, run="absent") == []


LOSSES = st.one_of(st.floats(min_value=-1e6, max_value=1e6), st.sampled_from([math.nan, math.inf, -math.inf]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(losses=st.lists(LOSSES, min_size=1, max_size=700), points=st.integers(1, 40))
def test_any_stream_is_tiled_once(tmp_path_factory: pytest.TempPathFactory, losses: list[float], points: int) -> None:
    """Whatever the losses, every report is in one bucket, and extremes and counts are those of the stream."""
    with writing(tmp_path_factory.mktemp("series")) as writer:
        voice = Voice(writer)
        voice.start()
        voice.tell(*(StepReport(at=0.0, step=step, loss=loss) for step, loss in enumerate(losses, start=1)))
        found = buckets(writer, points=points)
    finite = [loss for loss in losses if math.isfinite(loss)]
    assert len(found) <= points
    assert [each.first_step for each in found] == [1, *(each.last_step + 1 for each in found[:-1])]
    assert sum(each.count for each in found) == len(losses)
    assert sum(each.nonfinite for each in found) == len(losses) - len(finite)
    assert min((each.minimum for each in found if each.minimum is not None), default=None) == min(finite, default=None)
    assert max((each.maximum for each in found if each.maximum is not None), default=None) == max(finite, default=None)
