"""What went wrong in other schedulers on the two odd nights of a year, as our jobs have it. Each names its report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest

from bot.jobs.calendar import parse_schedule


def times(cron: str, zone: str, after: datetime, count: int) -> list[str]:
    schedule = parse_schedule(cron, zone, now=after)
    return [occurrence.local for occurrence in islice(schedule.after(after), count)]


@pytest.mark.parametrize(
    ("zone", "after", "expected"),
    [
        (
            "America/Los_Angeles",
            datetime(2026, 3, 8, 7, tzinfo=UTC),
            ["2026-03-08 00:00 -08:00", "2026-03-09 00:00 -07:00", "2026-03-10 00:00 -07:00"],
        ),
        (
            "Europe/Berlin",
            datetime(2026, 3, 28, 22, tzinfo=UTC),
            ["2026-03-29 00:00 +01:00", "2026-03-30 00:00 +02:00", "2026-03-31 00:00 +02:00"],
        ),
        (
            "Australia/Sydney",
            datetime(2026, 10, 3, 13, tzinfo=UTC),
            ["2026-10-04 00:00 +10:00", "2026-10-05 00:00 +11:00", "2026-10-06 00:00 +11:00"],
        ),
    ],
)
def test_a_job_at_midnight_misses_no_day_after_the_clocks_went_forward(
    zone: str, after: datetime, expected: list[str]
) -> None:
    """https://github.com/agronholm/apscheduler/issues/606"""
    assert times("0 0 * * *", zone, after, 3) == expected


def test_a_job_of_workdays_at_midnight_runs_on_the_monday_after_the_clocks_went_forward() -> None:
    """https://github.com/agronholm/apscheduler/issues/529: Tuesday was returned."""
    after = datetime(2021, 3, 12, 6, tzinfo=UTC)
    assert times("0 0 * * MON-FRI", "US/Central", after, 2) == ["2021-03-15 00:00 -05:00", "2021-03-16 00:00 -05:00"]


def test_a_day_without_a_midnight_is_not_missed() -> None:
    """https://github.com/agronholm/apscheduler/issues/606, in Sao Paulo in 2018."""
    after = datetime(2018, 11, 3, 12, tzinfo=UTC)
    assert times("0 0 * * *", "America/Sao_Paulo", after, 2) == ["2018-11-04 01:00 -02:00", "2018-11-05 00:00 -02:00"]


def test_a_half_hour_that_comes_twice_is_passed_and_no_endless_loop() -> None:
    """https://github.com/agronholm/apscheduler/issues/1021: 03:30 in Helsinki was its own next time."""
    after = datetime(2017, 10, 29, 0, 45, tzinfo=UTC)
    assert times("30 * * * *", "Europe/Helsinki", after, 3) == [
        "2017-10-29 03:30 +02:00",
        "2017-10-29 04:30 +02:00",
        "2017-10-29 05:30 +02:00",
    ]


def test_a_job_of_every_other_hour_goes_on_over_the_hour_that_comes_twice() -> None:
    """https://github.com/agronholm/apscheduler/issues/980: 01:00 in London was returned for ever."""
    found = times("0 */2 * * *", "Europe/London", datetime(2024, 10, 26, 21, tzinfo=UTC), 3)
    assert found == sorted(set(found))
    assert found[-1].startswith("2024-10-27 04:00")


def test_a_job_of_every_minute_is_not_stuck_while_the_clocks_go_forward() -> None:
    """https://github.com/agronholm/apscheduler/issues/1036: nothing fired for the hour of the gap."""
    schedule = parse_schedule("* * * * *", "America/New_York", now=datetime(2025, 3, 9, 6, tzinfo=UTC))
    found = [o.at for o in islice(schedule.after(datetime(2025, 3, 9, 6, 30, tzinfo=UTC)), 90)]
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=1)}


def test_an_hour_that_does_not_exist_is_no_time_of_its_own() -> None:
    """https://github.com/agronholm/apscheduler/issues/1059: a time in the gap was returned."""
    after = datetime(2013, 3, 10, 6, tzinfo=UTC)
    assert times("0 2 * * *", "US/Eastern", after, 2) == ["2013-03-10 03:00 -04:00", "2013-03-11 02:00 -04:00"]


def test_a_fixed_time_in_the_hour_that_comes_twice_fires_once() -> None:
    """https://github.com/agronholm/apscheduler/issues/120, and the double runs that croniter has in that night."""
    after = datetime(2015, 10, 24, 12, tzinfo=UTC)
    assert times("30 2 * * *", "Europe/Berlin", after, 2) == ["2015-10-25 02:30 +02:00", "2015-10-26 02:30 +01:00"]
