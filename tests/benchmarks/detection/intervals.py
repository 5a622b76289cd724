"""What a count says about a rate: Wilson's interval for a share, Garwood's for a count."""

from __future__ import annotations

import math

Z = 1.96


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share (E. B. Wilson, 1927)."""
    if trials == 0:
        return 0.0, 1.0
    share = hits / trials
    denominator = 1 + Z * Z / trials
    center = (share + Z * Z / (2 * trials)) / denominator
    half = Z * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials)) / denominator
    return max(0.0, center - half), min(1.0, center + half)


def poisson(count: int) -> tuple[float, float]:
    """95 % interval of a Poisson mean (F. Garwood, 1936; chi-square quantiles by Wilson and Hilferty)."""

    def quantile(degrees: int, z: float) -> float:
        return degrees * (1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3

    low = 0.0 if count == 0 else quantile(2 * count, -Z) / 2
    return low, quantile(2 * count + 2, Z) / 2
