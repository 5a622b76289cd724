from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.detectors.rolling import MAD_TO_SIGMA, SPREAD_EVERY, RollingWindow
from tests.builders import around

VALUES = st.lists(st.sampled_from([0.0, 1.0, -1.0]) | st.floats(-1e12, 1e12), max_size=80)


def _naive_spread(values: list[float]) -> float:
    return MAD_TO_SIGMA * median(abs(each - median(values)) for each in values)


@given(size=st.integers(1, 40), values=VALUES)
def test_is_the_naive_median_and_spread(size: int, values: list[float]) -> None:
    """After each value the median is that of the newest, and the spread theirs or that of a moment ago."""
    window = RollingWindow(size)
    for count, value in enumerate(values, start=1):
        window.push(value)
        newest = values[max(0, count - size) : count]
        assert window.values == newest
        assert window.ordered == sorted(newest)
        assert window.median == pytest.approx(median(newest))
        of_late = [values[max(0, end - size) : end] for end in range(max(1, count - SPREAD_EVERY + 1), count + 1)]
        assert any(window.spread == pytest.approx(_naive_spread(each), abs=1e-9) for each in of_late)


def test_spread_estimates_the_deviation_of_a_gaussian() -> None:
    """1.4826 MAD of Gaussian values is near their standard deviation."""
    window = RollingWindow(2000)
    for value in around(5.0, 2000, noise=0.3):
        window.push(value)
    assert window.spread == pytest.approx(0.3, rel=0.05)


def test_an_outlier_moves_neither_centre_nor_spread_far() -> None:
    """One value in a hundred, however wild, changes the median and the spread by little."""
    window = RollingWindow(100)
    for value in [*around(5.0, 99, noise=0.3), 1e9]:
        window.push(value)
    assert window.median == pytest.approx(5.0, abs=0.1)
    assert window.spread == pytest.approx(0.3, rel=0.3)


def test_the_middle_of_two_huge_values_is_finite() -> None:
    """The mean of the two middle values does not overflow."""
    window = RollingWindow(4)
    window.push(-1.7e308)
    window.push(-1.7e308)
    assert window.median == -1.7e308


def test_empty_is_zero() -> None:
    """A window without values has a centre and a spread of 0."""
    window = RollingWindow(4)
    assert (window.median, window.spread, len(window)) == (0.0, 0.0, 0)
