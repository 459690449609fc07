"""How long the collector waits for a target that keeps failing."""

from __future__ import annotations

import pytest

from bot.collector import LONGEST_PAUSE_S, find_pause


@pytest.mark.parametrize(
    ("failures", "pause_s"),
    [(0, 60), (1, 120), (4, 960), (5, 1800), (1_100, LONGEST_PAUSE_S), (10**6, LONGEST_PAUSE_S)],
)
def test_a_failing_target_is_tried_ever_more_rarely_and_never_given_up(failures: int, pause_s: float) -> None:
    assert find_pause(60.0, failures) == pause_s


def test_an_interval_longer_than_the_longest_pause_stays() -> None:
    assert find_pause(86_400.0, 7) == 86_400.0
