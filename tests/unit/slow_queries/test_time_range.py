"""Time ranges: every valid form, and errors that teach the valid forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.time_range import LONGEST_S, parse_time_range

NOW = datetime(2026, 3, 29, 14, 30, 0, tzinfo=UTC)

UNITS = {
    1: ("s", "sec", "secs", "second", "seconds"),
    60: ("m", "min", "mins", "minute", "minutes"),
    3600: ("h", "hr", "hrs", "hour", "hours"),
    86_400: ("d", "day", "days"),
    604_800: ("w", "week", "weeks"),
}
SPELLINGS = [(word, size) for size, words in UNITS.items() for word in words]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("last_30min", 1800),
        ("last_2h", 7200),
        ("last_1d", 86_400),
        ("last_1w", 604_800),
        ("last 30 minutes", 1800),
        ("past 2 hours", 7200),
        ("30min", 1800),
        ("2 hours", 7200),
        ("45s", 45),
        ("1.5h", 5400),
        ("last_hour", 3600),
        ("  LAST_30MIN ", 1800),
        ("last-15-min", 900),
    ],
)
def test_a_length_of_time_ends_now(text: str, seconds: float) -> None:
    found = parse_time_range(text, now=NOW)
    assert (found.end, found.length_s) == (NOW, seconds)


@given(
    count=st.integers(1, 10_000), spelling=st.sampled_from(SPELLINGS), prefix=st.sampled_from(["last_", "past ", ""])
)
def test_every_unit_and_count_is_read_exactly_or_refused_for_its_length(
    count: int, spelling: tuple[str, int], prefix: str
) -> None:
    word, size = spelling
    text = f"{prefix}{count}{word}"
    if count * size > LONGEST_S:
        with pytest.raises(ToolFailed, match="longest range"):
            parse_time_range(text, now=NOW)
    else:
        assert parse_time_range(text, now=NOW).length_s == count * size


@given(st.text(max_size=60))
def test_any_text_gives_a_range_or_the_error_that_lists_the_forms(text: str) -> None:
    try:
        found = parse_time_range(text, now=NOW)
    except ToolFailed as caught:
        failure = caught
    else:
        assert 0 < found.length_s <= LONGEST_S
        assert found.start.utcoffset() == found.end.utcoffset() == timedelta(0)
        assert found.end <= NOW
        return
    assert (failure.code, failure.retryable) == ("bad_time_range", False)
    assert "last_30min" in failure.message
    assert "yesterday" in failure.message


def test_days_are_utc_days_whatever_the_zone_of_now() -> None:
    midnight = datetime(2026, 3, 29, tzinfo=UTC)
    elsewhere = NOW.astimezone(timezone(timedelta(hours=11)))  # already the 30th there
    today = parse_time_range("today", now=elsewhere)
    assert (today.start, today.end) == (midnight, NOW)
    yesterday = parse_time_range("Yesterday", now=NOW)
    assert (yesterday.start, yesterday.end) == (midnight - timedelta(days=1), midnight)


def test_an_interval_is_read_with_its_zones_and_cut_at_now() -> None:
    found = parse_time_range("2026-03-29T10:00:00+02:00/2026-03-29T09:00:00Z", now=NOW)
    assert (found.start, found.end) == (
        datetime(2026, 3, 29, 8, tzinfo=UTC),
        datetime(2026, 3, 29, 9, tzinfo=UTC),
    )
    assert parse_time_range("2026-03-29T14:00:00z/2026-03-30T00:00:00z", now=NOW).end == NOW


@given(
    start=st.integers(2, int(LONGEST_S)),
    length=st.integers(1, int(LONGEST_S)),
    hours=st.integers(-12, 14),
)
def test_every_interval_that_is_written_out_is_read_back(start: int, length: int, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    begin = NOW - timedelta(seconds=start)
    end = min(begin + timedelta(seconds=length), NOW)
    found = parse_time_range(f"{begin.astimezone(zone).isoformat()}/{end.astimezone(zone).isoformat()}", now=NOW)
    assert (found.start, found.end) == (begin, end)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-03-29T10:00:00/2026-03-29T11:00:00", "no zone"),
        ("2026-03-28/2026-03-29", "no zone"),
        ("2026-03-29T11:00:00Z/2026-03-29T10:00:00Z", "ends before it begins"),
        ("2026-03-29T10:00:00Z/2026-03-29T10:00:00Z", "empty"),
        ("2026-03-30T10:00:00Z/2026-03-30T11:00:00Z", "begins in the future"),
        ("2026-01-01T00:00:00Z/2026-03-29T00:00:00Z", "longest range is 14 days"),
        ("a/b", "not an ISO 8601 instant"),
        ("2026-03-29T10:00:00Z/2026-03-29T11:00:00Z/x", "instant"),
        ("last_0min", "empty"),
        ("last_-5min", "not one of the forms"),
        ("last_99999999w", "longest range"),
        ("min", "a number is missing"),
        ("30", "not one of the forms"),
        ("tomorrow", "not one of the forms"),
        ("", "not one of the forms"),
    ],
)
def test_what_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_time_range(text, now=NOW)
    assert why in caught.value.message
    assert "Valid forms: last_30min" in caught.value.message
