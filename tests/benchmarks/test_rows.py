from __future__ import annotations

import pytest

from tests.benchmarks.rows import Middle, middle, percentile


@pytest.mark.parametrize(("count", "low", "high"), [(2, 1, 2), (6, 1, 6), (12, 3, 10), (100, 40, 61)])
def test_the_interval_of_a_median_is_the_binomial_one(count: int, low: int, high: int) -> None:
    """Of so many values in order these two hold the median in 95 of 100 cases (Conover's table); of few, the range."""
    assert middle([float(value) for value in range(count, 0, -1)]) == Middle((count + 1) / 2, low, high)


def test_a_percentile_is_one_of_the_values() -> None:
    """99 of 100 values are not above the 99th percentile."""
    assert percentile([float(value) for value in range(100, 0, -1)], 0.99) == 99.0
