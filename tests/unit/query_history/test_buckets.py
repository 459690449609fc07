"""How a range is divided, and which reading stands for which border."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.query_history.buckets import MOST_BUCKETS, choose_bucket, choose_readings, share_covered, split_range
from bot.tools.query_history.text_chart import draw_bars
from bot.tools.slow_queries.time_range import LONGEST_S, TimeRange

T0 = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def asked(seconds: float, *, at: datetime = T0) -> TimeRange:
    return TimeRange(start=at, end=at + timedelta(seconds=seconds), asked="")


@given(seconds=st.floats(1, LONGEST_S), offset=st.floats(0, 86_400))
def test_without_a_length_there_are_few_buckets_and_they_tile_the_range(seconds: float, offset: float) -> None:
    span = asked(seconds, at=T0 + timedelta(seconds=offset))
    bucket_s = choose_bucket(None, span)
    borders = split_range(span, bucket_s)
    assert (borders[0], borders[-1]) == (span.start, span.end)
    assert 2 <= len(borders) <= 43
    lengths = [(b - a).total_seconds() for a, b in pairwise(borders)]
    assert all(0 < length < bucket_s * 1.2 for length in lengths)
    assert len(lengths) == 1 or min(lengths) >= bucket_s * 0.0999
    assert all(length == pytest.approx(bucket_s) for length in lengths[1:-1])


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5min", 300), ("5 minutes", 300), (" 1H ", 3600), ("1d", 86_400), ("15m", 900)]
)
def test_lengths_are_read(text: str, seconds: float) -> None:
    assert choose_bucket(text, asked(1800)) == seconds


@pytest.mark.parametrize("text", ["", "5", "min", "0s", "9s", "-1h", "1 fortnight", "1h30m", "5min; drop"])
def test_other_lengths_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ToolFailed) as raised:
        choose_bucket(text, asked(3600))
    assert raised.value.code == "bad_bucket"
    assert "5min" in raised.value.fix


def test_more_buckets_than_can_be_read_are_refused_with_the_least_length() -> None:
    with pytest.raises(ToolFailed, match=f"more than {MOST_BUCKETS} of them; take at least 960s"):
        choose_bucket("60s", asked(86_400))
    assert choose_bucket("960s", asked(86_400)) == 960


def test_the_nearest_reading_stands_for_a_border_if_it_is_near_enough() -> None:
    def at(minutes: float) -> datetime:
        return T0 + timedelta(minutes=minutes)

    taken = [at(-1), at(4), at(9.5), at(10.6), at(31)]
    borders = [at(0), at(10), at(20), at(30)]
    assert choose_readings(borders, taken, slack_s=300) == [at(-1), at(9.5), None, at(31)]
    assert choose_readings(borders, [], slack_s=300) == [None] * 4
    assert choose_readings(borders, taken, slack_s=30) == [None, at(9.5), None, None]


@given(
    borders=st.lists(st.integers(0, 1000), min_size=1, unique=True).map(sorted),
    taken=st.lists(st.integers(0, 1000)).map(sorted),
    slack=st.integers(0, 50),
)
def test_no_reading_is_nearer_than_the_chosen_one(borders: list[int], taken: list[int], slack: int) -> None:
    def at(seconds: int) -> datetime:
        return T0 + timedelta(seconds=seconds)

    chosen = choose_readings([at(b) for b in borders], [at(t) for t in taken], slack_s=slack)
    for border, one in zip(borders, chosen, strict=True):
        nearest = min((abs(t - border) for t in taken), default=10_000)
        assert (one is None) == (nearest > slack)
        if one is not None:
            assert abs((one - at(border)).total_seconds()) == nearest


def test_coverage_is_what_two_spans_share_of_what_they_span() -> None:
    def at(minutes: float) -> datetime:
        return T0 + timedelta(minutes=minutes)

    assert share_covered(at(0), at(10), at(0), at(10)) == 1
    assert share_covered(at(0), at(10), at(0), at(5)) == 0.5
    assert share_covered(at(0), at(10), at(-10), at(10)) == 0.5
    assert share_covered(at(0), at(10), at(20), at(30)) == 0


def test_a_chart_tells_high_from_low_none_from_unknown() -> None:
    assert draw_bars([0.0, None, 1.0, 8.0, 4.0]) == "· ▂█▅"
    assert draw_bars([]) == ""
    assert draw_bars([0.0, None]) == "· "
    assert draw_bars([None, None]) == "  "
