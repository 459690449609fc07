"""Schedules as people write them, and what is said of those that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.jobs.calendar import BadSchedule, parse_schedule
from bot.jobs.due import MOST_AT_ONCE, find_due

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("0 9 * *", "UTC", "5 cron fields, not 4"),
        ("0 0 9 * * *", "UTC", "5 cron fields, not 6"),
        ("@daily", "UTC", "5 cron fields, not 1"),
        ("", "UTC", "5 cron fields, not 0"),
        ("61 9 * * *", "UTC", "bad minute"),
        ("0 9 * * XYZ", "UTC", "bad day-of-week"),
        ("0 9 30 2 *", "UTC", "day-of-month"),
        ("0 9 * * *", "Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("0 9 * * *", "berlin", "did you mean 'Europe/Berlin'?"),
        ("0 9 * * *", "../etc/passwd", "no time zone"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_right_form(cron: str, zone: str, said: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        parse_schedule(cron, zone, now=NOW)
    assert said in str(refused.value)
    assert "Europe/Berlin" in str(refused.value)


def test_a_zone_is_found_whatever_its_case_and_blanks() -> None:
    assert parse_schedule("0 9 * * *", "america/new york", now=NOW).zone == "America/New_York"


def test_a_time_that_does_not_exist_runs_at_the_end_of_the_gap_and_shows_its_offset() -> None:
    schedule = parse_schedule("30 2 * * *", "Europe/Berlin", now=NOW)
    assert [o.local for o in islice(schedule.after(NOW), 2)] == ["2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]


def test_a_time_that_comes_twice_runs_once() -> None:
    schedule = parse_schedule("30 2 * * *", "Europe/Berlin", now=NOW)
    night = datetime(2026, 10, 24, 22, tzinfo=UTC)
    assert [o.local for o in islice(schedule.after(night), 2)] == ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]
    in_between = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    assert next(schedule.after(in_between)).local == "2026-10-26 02:30 +01:00"


def test_two_times_in_a_gap_are_one_occurrence() -> None:
    schedule = parse_schedule("0,30 2 * * *", "Europe/Berlin", now=NOW)
    assert [o.local for o in islice(schedule.after(NOW), 2)] == ["2026-03-29 03:00 +02:00", "2026-03-30 02:00 +02:00"]


def test_a_year_of_downtime_is_decided_about_at_once_and_told() -> None:
    schedule = parse_schedule("* * * * *", "UTC", now=NOW)
    due = find_due(schedule, next_at=NOW, now=NOW + timedelta(days=365), catch_up="all", grace_s=7 * 86_400)
    assert len(due.run) == MOST_AT_ONCE
    assert due.run[-1].at == NOW + timedelta(days=365)
    assert due.missed == 7 * 1440 + 1 - MOST_AT_ONCE
    assert due.missed_since == NOW


def test_a_clock_that_was_set_back_runs_nothing_twice() -> None:
    schedule = parse_schedule("0 * * * *", "UTC", now=NOW)
    first = find_due(schedule, next_at=NOW, now=NOW)
    assert [o.at for o in first.run] == [NOW]
    assert first.next_at is not None
    back = find_due(schedule, next_at=first.next_at, now=NOW - timedelta(hours=3))
    assert back.run == ()
    assert back.next_at == first.next_at


FIELDS = st.sampled_from(
    ["*", "*/5", "0", "7", "1-5", "1,3", "MON", "JAN", "L", "2#1", "5L", "x", "60", "99", "", "*/0"]
)


@given(st.lists(FIELDS, min_size=0, max_size=7), st.sampled_from(["UTC", "Asia/Kolkata", "Mars/Base", ""]))
def test_any_text_is_a_schedule_with_a_next_time_or_is_refused(fields: list[str], zone: str) -> None:
    try:
        schedule = parse_schedule(" ".join(fields), zone, now=NOW)
    except BadSchedule:
        return
    found = list(islice(schedule.after(NOW), 3))
    assert found
    assert sorted(found) == found
    assert found[0].at > NOW
