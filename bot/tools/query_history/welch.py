"""Whether two windows differ by more than chance: Welch's test on what is known of each, calls, mean and deviation.

B. L. Welch, "The generalization of Student's problem when several different population variances are involved",
Biometrika 34 (1947); the degrees of freedom are Satterthwaite's. The tail of Student's distribution is the incomplete
beta function (Abramowitz and Stegun 26.7.1 and 26.5.8), by Lentz's continued fraction.
"""

from __future__ import annotations

import math

_TINY = 1e-300
_STEPS = 500


def compare_means(calls_a: int, mean_a: float, stddev_a: float, calls_b: int, mean_b: float, stddev_b: float) -> float:
    """Return the two-sided probability of a difference this large between samples of one population.

    Args:
        calls_a, calls_b: at least 2 each, else nothing can be said and the answer is 1.
        mean_a, mean_b: of the samples.
        stddev_a, stddev_b: of the samples as a whole population, as databases count them.
    """
    if calls_a < 2 or calls_b < 2:
        return 1.0
    # stddev^2 is divided by n; the unbiased variance of the mean is that over n - 1.
    part_a, part_b = stddev_a**2 / (calls_a - 1), stddev_b**2 / (calls_b - 1)
    spread = part_a + part_b
    if spread <= 0:
        return 1.0 if mean_a == mean_b else 0.0
    t = (mean_b - mean_a) / math.sqrt(spread)
    share = part_a / spread  # in shares, so that tiny variances do not vanish when they are squared
    freedom = 1 / (share**2 / (calls_a - 1) + (1 - share) ** 2 / (calls_b - 1))
    return student_tail(t, freedom)


def student_tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t is farther from 0 than ``t``, on either side."""
    if math.isinf(t):
        return 0.0
    return min(1.0, max(0.0, _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            value *= d * c
        if abs(d * c - 1) < 1e-13:
            break
    return value


def _apart(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
