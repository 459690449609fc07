"""The golden calendar: twenty zones, four hundred days, five jobs; each local occurrence once, whatever the clock does.

What is expected is computed here day by day from the zone's own rules, without any cron library.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from bot.jobs.calendar import Schedule, parse_schedule
from bot.jobs.due import MOST_AT_ONCE, PUNCTUAL_S, CatchUp, find_due

EUROPE = [f"Europe/{city}" for city in ("Berlin", "London", "Dublin")]
AMERICA = ["New_York", "Los_Angeles", "Sao_Paulo", "St_Johns", "Havana", "Santiago", "Asuncion"]
ELSEWHERE = [
    *("UTC", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Shanghai"),
    *("Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham"),
]
ZONES = [*EUROPE, *(f"America/{city}" for city in AMERICA), *ELSEWHERE]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 400
END = BEGIN + timedelta(days=DAYS)
JOBS = {
    "daily": "0 9 * * *",
    "at half past two": "30 2 * * *",
    "weekday": "15 0 * * MON-FRI",
    "monthly": "0 0 1 * *",
    "every quarter": "*/15 * * * *",
}
MATCHES: dict[str, tuple[time, Callable[[date], bool]]] = {
    "daily": (time(9), lambda day: True),
    "at half past two": (time(2, 30), lambda day: True),
    "weekday": (time(0, 15), lambda day: day.weekday() < 5),
    "monthly": (time(0), lambda day: day.day == 1),
}


def expect_daily(zone: ZoneInfo, at: time, matches: Callable[[date], bool]) -> Iterator[datetime]:
    """The first of two equal local times; the end of the gap for one that does not exist."""
    day = BEGIN.date() - timedelta(days=2)
    while day <= END.date() + timedelta(days=2):
        if matches(day):
            wanted = datetime.combine(day, at)
            instant = wanted.replace(tzinfo=zone).astimezone(UTC)
            if instant.astimezone(zone).replace(tzinfo=None) != wanted:  # it does not exist: find the first that does
                instant -= timedelta(hours=3)
                while instant.astimezone(zone).replace(tzinfo=None) < wanted:
                    instant += timedelta(minutes=1)
            yield instant
        day += timedelta(days=1)


def expect_quarters(zone: ZoneInfo) -> Iterator[datetime]:
    instant = BEGIN
    while instant <= END:
        if instant.astimezone(zone).minute % 15 == 0:
            yield instant
        instant += timedelta(minutes=5)


@cache
def expect(job: str, zone: str) -> tuple[datetime, ...]:
    found = expect_quarters(ZoneInfo(zone)) if job == "every quarter" else expect_daily(ZoneInfo(zone), *MATCHES[job])
    return tuple(at for at in found if BEGIN < at <= END)


def make(job: str, zone: str) -> Schedule:
    return parse_schedule(JOBS[job], zone, now=BEGIN)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("job", JOBS)
def test_every_local_occurrence_is_in_the_calendar_once(job: str, zone: str) -> None:
    found = list(takewhile(lambda o: o.at <= END, make(job, zone).after(BEGIN)))
    assert [o.at for o in found] == list(expect(job, zone))
    assert len({o.key for o in found}) == len(found)


@pytest.mark.parametrize("zone", ZONES)
def test_the_calendar_is_the_same_from_wherever_one_begins_to_look(zone: str) -> None:
    rng = random.Random(zone)
    for job in ("at half past two", "weekday"):
        schedule, expected = make(job, zone), expect(job, zone)
        for _ in range(150):
            instant = BEGIN + timedelta(seconds=rng.uniform(0, (DAYS - 40) * 86_400))
            found = schedule.next(instant)
            assert found is not None
            assert found.at == expected[bisect_right(expected, instant)]


def live(rng: random.Random) -> Iterator[datetime]:
    """What a process's clock shows when it looks: every few minutes, with downtime, and set back and forth."""
    now = BEGIN
    while now < END:
        yield now
        now += timedelta(seconds=rng.uniform(20, 2400))
        dice = rng.random()
        if dice < 0.002:
            now += timedelta(hours=rng.uniform(1, 60))  # down, or the clock was set forward
        elif dice < 0.006:
            now -= timedelta(hours=rng.uniform(0.1, 5))  # set back
    yield END


def simulate(job: str, zone: str, catch_up: CatchUp, grace: timedelta) -> tuple[list[datetime], list[datetime], int]:
    """Return what ran, what should have, and how many times were given up."""
    schedule, expected = make(job, zone), expect(job, zone)
    first = schedule.next(BEGIN)
    assert first is not None
    next_at, decided = first.at, 0
    ran: list[datetime] = []
    keys: list[str] = []
    wanted: list[datetime] = []
    missed = 0
    for now in live(random.Random(f"{job}{zone}{catch_up}")):
        due = find_due(schedule, next_at=next_at, now=now, catch_up=catch_up, grace_s=grace.total_seconds())
        assert due.next_at is not None
        ran += [o.at for o in due.run]
        keys += [o.key for o in due.run]
        missed, next_at = missed + due.missed, due.next_at
        until = max(decided, bisect_right(expected, now))
        lateness = timedelta(seconds=PUNCTUAL_S) if catch_up == "none" else grace
        fresh = [at for at in expected[decided:until] if now - at <= lateness]
        wanted += fresh[-MOST_AT_ONCE:] if catch_up == "all" else fresh[-1:]
        decided = until
    assert len(set(keys)) == len(keys)
    return ran, wanted, missed


@pytest.mark.parametrize("zone", ZONES)
def test_with_all_every_occurrence_runs_once_whatever_the_clock_does(zone: str) -> None:
    for job in MATCHES:
        ran, _, missed = simulate(job, zone, "all", timedelta(days=7))
        assert ran == list(expect(job, zone))
        assert missed == 0


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/Havana"])
def test_a_job_of_every_quarter_makes_up_for_a_day_and_counts_the_rest(zone: str) -> None:
    ran, wanted, missed = simulate("every quarter", zone, "all", timedelta(days=7))
    assert ran == wanted
    assert len(ran) + missed == len(expect("every quarter", zone))


@pytest.mark.parametrize("catch_up", ["latest", "none"])
@pytest.mark.parametrize("zone", ZONES)
def test_what_was_missed_runs_as_the_policy_says(zone: str, catch_up: CatchUp) -> None:
    for job in ("at half past two", "weekday"):
        ran, wanted, _ = simulate(job, zone, catch_up, timedelta(hours=6))
        assert ran == wanted
        assert wanted
        assert len(wanted) < len(expect(job, zone))


@pytest.mark.parametrize("catch_up", ["latest", "none"])
def test_a_job_of_every_quarter_follows_its_policy_too(catch_up: CatchUp) -> None:
    ran, wanted, _ = simulate("every quarter", "Europe/Berlin", catch_up, timedelta(hours=1))
    assert ran == wanted
    assert wanted
