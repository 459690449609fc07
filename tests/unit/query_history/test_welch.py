"""Welch's test against published tables, and against what a test has to satisfy."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.query_history.welch import compare_means, student_tail


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [
        # the two-sided 0.05 and 0.01 columns of any table of Student's distribution
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (2.228, 10, 0.05),
        (3.169, 10, 0.01),
        (2.042, 30, 0.05),
        (2.750, 30, 0.01),
        (1.960, 1e7, 0.05),
        (2.576, 1e7, 0.01),
        (0.0, 5, 1.0),
    ],
)
def test_the_tail_of_students_distribution_is_that_of_the_tables(t: float, freedom: float, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, rel=2e-3)
    assert student_tail(-t, freedom) == student_tail(t, freedom)


def test_the_textbook_example_of_unequal_variances() -> None:
    """Two samples of 15 with known sums; t = -2.46, 25 degrees of freedom, p = 0.021."""
    a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    p = compare_means(
        len(a), statistics.fmean(a), statistics.pstdev(a), len(b), statistics.fmean(b), statistics.pstdev(b)
    )
    assert p == pytest.approx(0.021, abs=0.001)


def test_of_samples_of_one_population_as_many_are_called_different_as_the_level_says() -> None:
    dice = random.Random(5)
    below = 0
    for _ in range(2000):
        a = [dice.gauss(1, 0.2) for _ in range(30)]
        b = [dice.gauss(1, 0.2) for _ in range(12)]
        p = compare_means(30, statistics.fmean(a), statistics.pstdev(a), 12, statistics.fmean(b), statistics.pstdev(b))
        below += p < 0.05
    assert 60 <= below <= 145


@given(
    calls=st.integers(0, 10**9),
    other=st.integers(0, 10**9),
    mean_a=st.floats(0, 1e6),
    mean_b=st.floats(0, 1e6),
    stddev_a=st.floats(0, 1e6),
    stddev_b=st.floats(0, 1e6),
)
def test_it_is_a_probability_whatever_a_server_says(
    calls: int, other: int, mean_a: float, mean_b: float, stddev_a: float, stddev_b: float
) -> None:
    p = compare_means(calls, mean_a, stddev_a, other, mean_b, stddev_b)
    assert 0 <= p <= 1
    assert p == pytest.approx(compare_means(other, mean_b, stddev_b, calls, mean_a, stddev_a), abs=1e-9)


def test_of_one_call_nothing_can_be_said_and_constant_durations_differ_for_certain() -> None:
    assert compare_means(1, 1.0, 0.0, 100, 9.0, 0.1) == 1.0
    assert compare_means(5, 1.0, 0.0, 5, 1.0, 0.0) == 1.0
    assert compare_means(5, 1.0, 0.0, 5, 2.0, 0.0) == 0.0
