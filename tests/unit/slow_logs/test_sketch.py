"""Percentiles that are read back are within half a percent of the value of exactly that rank."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.slow_logs.sketch import ACCURACY, Sketch

SHARES = (0.5, 0.95, 0.99)


def exact(values: list[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=300))
def test_percentiles_are_within_the_stated_accuracy(values: list[float]) -> None:
    sketch = Sketch()
    sketch.add(values)
    for share, found in zip(SHARES, sketch.read(*SHARES), strict=True):
        assert found == pytest.approx(exact(values, share), rel=ACCURACY * 1.001)


def test_percentiles_of_a_long_skewed_stream_stay_within_one_percent() -> None:
    draw = random.Random(3)
    values = [0.3 * math.exp(draw.gauss(0, 1)) for _ in range(50_000)]
    sketch = Sketch()
    for start in range(0, len(values), 64):
        sketch.add(values[start : start + 64])
    assert len(sketch) == 50_000
    for share, found in zip(SHARES, sketch.read(*SHARES), strict=True):
        assert found == pytest.approx(exact(values, share), rel=0.01)


def test_durations_of_zero_are_counted_as_zero() -> None:
    sketch = Sketch()
    sketch.add([0.0, 0.0, 0.0, 2.0])
    median, longest = sketch.read(0.5, 1.0)
    assert median == 0.0
    assert longest == pytest.approx(2.0, rel=ACCURACY)
    assert Sketch().read(0.5) == (0.0,)
