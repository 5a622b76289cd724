from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sentinel.store.series import Bucket
from sentinel.web.curves import Curve, spans, split


def bucket(segment: int, first: int, last: int | None = None, *, value: float | None = 1.0, count: int = 1) -> Bucket:
    """A bucket of one branch."""
    nonfinite = 0 if value is not None else count
    return Bucket(
        attempt="a",
        segment=segment,
        first_step=first,
        last_step=first if last is None else last,
        count=count,
        nonfinite=nonfinite,
        minimum=value,
        mean=value,
        maximum=value,
        last=value,
    )


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=6))
def test_each_report_is_kept_or_given_up_and_the_path_never_goes_back(branches: list[tuple[int, int]]) -> None:
    """Whatever was rolled back, no report is lost or drawn twice, the path's steps rise, and the newest is on it."""
    told = [
        bucket(segment, first + offset) for segment, (first, length) in enumerate(branches) for offset in range(length)
    ]
    kept, abandoned = split(told)
    assert sorted([*kept, *(each for branch in abandoned for each in branch)], key=told.index) == told
    steps = [each.last_step for each in kept]
    assert steps == sorted(set(steps))
    assert kept[-1] is told[-1]
    assert all(len({each.segment for each in branch}) == 1 for branch in abandoned)


def test_values_that_are_not_finite_are_marks_and_no_points() -> None:
    """A bucket of NaN alone is a gap in the line and a mark at its step, and the whole is JSON that browsers read."""
    tree = Curve("loss", [bucket(0, 1), bucket(0, 2, value=None), bucket(0, 3)]).tree()
    assert tree["mean"] == [1.0, None, 1.0]
    assert tree["nonfinite"] == [[2, 1]]
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree


def test_the_axis_is_logarithmic_only_where_a_linear_one_would_show_nothing() -> None:
    """A range of more than a hundred asks for logarithms, unless a value is zero or below."""
    wide = [bucket(0, 1, value=1e-3), bucket(0, 2, value=5.0)]
    assert Curve("lr", wide).tree()["log"]
    assert not Curve("lr", [*wide, bucket(0, 3, value=0.0)]).tree()["log"]
    assert not Curve("lr", [bucket(0, 1), bucket(0, 2, value=50.0)]).tree()["log"]


def test_a_spike_that_was_given_up_is_seen_in_a_bucket_of_many_steps() -> None:
    """A point of an abandoned branch tells its lowest and highest beside its mean."""
    spike = replace(bucket(0, 1, 4096, value=2.0, count=4096), maximum=90.0)
    assert Curve("loss", [], [[spike]]).tree()["abandoned"] == [[[4096, 2.0, 2.0, 90.0]]]


def test_an_empty_curve_has_no_numbers() -> None:
    """A series that was never told is nothing, and no error."""
    curve = Curve("loss", [])
    assert (curve.newest, curve.lowest, curve.numbers) == (None, None, [])


def test_an_incident_ends_where_its_branch_was_given_up() -> None:
    """After a rollback the end lies at lower steps than the onset: the mark ends where the rollback was ordered."""
    rows = [
        {"id": "i1", "onset_step": 80, "end_step": 30, "severity": "critical"},
        {"id": "i2", "onset_step": 95, "end_step": None, "severity": "warning"},
    ]
    assert [(each["label"], each["from"], each["to"]) for each in spans(rows, step=99, acted={"i1": 84})] == [
        ("1", 80, 84),
        ("2", 95, 99),
    ]
