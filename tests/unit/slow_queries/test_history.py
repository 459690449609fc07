"""Which stored readings answer a question, and what the answer says of its coverage."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from bot.storage.snapshots import Snapshot
from bot.tools.slow_queries.counters import Counter, Counters, StatementKey
from bot.tools.slow_queries.history import Choice, choose_window, save_reading
from bot.tools.slow_queries.time_range import parse_time_range

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
BOOT = NOW - timedelta(days=30)
KEY = StatementKey(1, 1, True, 1)


class Shelf:
    """Snapshots in the order of their instants."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.snapshots.sort(key=lambda s: s.taken_at)

    async def find_snapshot(
        self, target: str, *, at: datetime, side: Literal["before", "after"], keys: Collection[str] | None = None
    ) -> Snapshot | None:
        mine = [s for s in self.snapshots if s.target == target]
        if side == "before":
            return next((s for s in reversed(mine) if s.taken_at <= at), None)
        return next((s for s in mine if s.taken_at > at), None)


def reading(minutes_ago: float, *, reset_at: datetime | None = BOOT, system_id: str = "1") -> Counters:
    """A reading of a server on which one statement runs once a minute, for one second."""
    at = NOW - timedelta(minutes=minutes_ago)
    calls = max(0, round((at - (reset_at or BOOT)).total_seconds() / 60))
    return Counters(
        taken_at=at,
        server_now=at,
        server_started_at=BOOT,
        reset_at=reset_at,
        evicted=0 if reset_at else None,
        system_id=system_id,
        entries={KEY: Counter(calls=calls, total_s=float(calls), mean_s=1.0, stddev_s=0.0, max_s=1.0)},
    )


async def choose(asked: str, *minutes_ago: float, now: Counters | None = None) -> Choice:
    shelf = Shelf()
    for minutes in minutes_ago:
        await save_reading(shelf, "shop", reading(minutes))
    return await choose_window(shelf, "shop", now or reading(0), parse_time_range(asked, now=NOW))


def span(choice: Choice) -> tuple[float, float]:
    """The window in minutes before now."""
    assert choice.window.start is not None
    return (NOW - choice.window.start).total_seconds() / 60, (NOW - choice.window.end).total_seconds() / 60


async def test_without_a_reading_the_whole_life_is_told_with_its_beginning() -> None:
    choice = await choose("last_30min")
    assert choice.lifetime
    assert choice.window.start == BOOT
    assert "no earlier reading" in choice.reasons[0]
    assert "2026-04-01T12:00:00.000Z" in choice.reasons[0]


async def test_readings_of_another_target_or_another_server_are_not_used() -> None:
    shelf = Shelf()
    await save_reading(shelf, "other", reading(30))
    await save_reading(shelf, "shop", reading(30, system_id="2"))
    asked = parse_time_range("last_30min", now=NOW)
    assert (await choose_window(shelf, "shop", reading(0), asked)).lifetime


async def test_a_reading_at_the_asked_start_gives_a_complete_window() -> None:
    choice = await choose("last_30min", 30, 10, 90)
    assert not choice.lifetime
    assert span(choice) == (30, 0)
    assert choice.window.activities[KEY].calls == 30
    assert (choice.snapshots, choice.reasons) == (1, ())


async def test_a_window_that_begins_after_the_asked_start_says_what_is_not_known() -> None:
    choice = await choose("last_30min", 20)
    assert span(choice) == (20, 0)
    assert choice.window.activities[KEY].calls == 20
    assert choice.reasons == ("nothing is known of the time before 2026-05-01T11:40:00.000Z (the first reading)",)


@pytest.mark.parametrize(
    ("readings", "begins"),
    [
        ((40, 5), 40),  # ten minutes too many are better than five of thirty
        ((600, 20), 20),  # ten hours would drown the half hour
        ((600,), 600),  # better than the whole life
        ((1,), 1),
    ],
)
async def test_the_window_that_is_most_like_the_asked_range_wins(readings: tuple[float, ...], begins: float) -> None:
    choice = await choose("last_30min", *readings)
    assert span(choice) == (begins, 0)
    assert not choice.lifetime
    assert choice.reasons


async def test_a_window_that_begins_earlier_than_asked_says_by_how_much() -> None:
    assert "begins 10 min earlier" in (await choose("last_30min", 40)).reasons[0]


async def test_a_range_in_the_past_is_between_the_readings_next_to_its_ends() -> None:
    choice = await choose("2026-05-01T10:00:00Z/2026-05-01T11:00:00Z", 300, 121, 58, 5)
    assert span(choice) == (121, 58)
    assert choice.snapshots == 2
    assert choice.window.activities[KEY].calls == 63
    assert len(choice.reasons) == 2


async def test_a_reset_since_the_reading_moves_the_beginning_and_is_told() -> None:
    reset = NOW - timedelta(minutes=12)
    choice = await choose("last_30min", 30, now=reading(0, reset_at=reset))
    assert span(choice) == (12, 0)
    assert choice.window.activities[KEY].calls == 12
    assert "the counters were reset then" in choice.reasons[0]


async def test_an_old_extension_without_a_reset_time_still_gets_windows() -> None:
    shelf = Shelf()
    await save_reading(shelf, "shop", reading(30, reset_at=None))
    asked = parse_time_range("last_30min", now=NOW)
    choice = await choose_window(shelf, "shop", reading(0, reset_at=None), asked)
    assert choice.window.activities[KEY].calls == 30
    assert choice.reasons == ()
    assert (await choose_window(Shelf(), "shop", reading(0, reset_at=None), asked)).window.start is None
