from __future__ import annotations

from itertools import product

from sentinel.domain.findings import SEVERITIES, worse


def test_worse_is_the_more_severe_of_two() -> None:
    """Of two severities the later in the scale counts, whichever comes first."""
    for one, other in product(SEVERITIES, repeat=2):
        assert SEVERITIES.index(worse(one, other)) == max(SEVERITIES.index(one), SEVERITIES.index(other))
