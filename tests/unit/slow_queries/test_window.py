"""The arithmetic of windows against executions that are known one by one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.slow_queries.counters import Counter, Counters, StatementKey, build_snapshot, read_snapshot
from bot.tools.slow_queries.window import build_window, merge_activities

KEY = StatementKey(10, 5, True, -(2**63))
T0 = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
RESET = T0 - timedelta(days=20)


def count(durations: Sequence[float], *, since: float | None = None) -> Counter:
    """What the server would have counted."""
    return Counter(
        calls=len(durations),
        total_s=math.fsum(durations),
        mean_s=statistics.fmean(durations),
        stddev_s=statistics.pstdev(durations),
        max_s=max(durations),
        rows=len(durations),
        temp_blocks=2 * len(durations),
        since=since,
    )


def read(
    entries: dict[StatementKey, Counter],
    at: datetime,
    *,
    reset_at: datetime | None = RESET,
    evicted: int | None = 0,
    ahead: timedelta = timedelta(),
) -> Counters:
    """A reading of a server whose clock is ``ahead`` of ours."""
    return Counters(
        taken_at=at,
        server_now=at + ahead,
        server_started_at=RESET,
        reset_at=reset_at,
        evicted=evicted,
        system_id="1",
        entries=entries,
    )


DURATIONS = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=40)


@given(old=DURATIONS, new=DURATIONS)
def test_calls_total_mean_deviation_and_maximum_are_those_of_the_executions_in_between(
    old: list[float], new: list[float]
) -> None:
    window = build_window(read({KEY: count(old)}, T0), read({KEY: count(old + new)}, T0 + timedelta(minutes=5)))
    found = window.activities[KEY]
    assert found.calls == len(new)
    assert found.total_s == pytest.approx(math.fsum(new), abs=1e-6)
    assert found.mean_s == pytest.approx(statistics.fmean(new), abs=1e-6)
    assert found.stddev_s == pytest.approx(statistics.pstdev(new), rel=1e-4, abs=1e-3)
    assert found.max_s >= max(new) - 1e-6
    if found.max_exact:
        assert found.max_s == pytest.approx(max(new), abs=1e-6)
    assert found.max_exact == (max(new) > max(old) or len(new) == 1)
    assert (found.rows, found.temp_bytes) == (len(new), 2 * 8192 * len(new))
    assert (window.start, window.end) == (T0, T0 + timedelta(minutes=5))


@given(
    before=st.dictionaries(st.integers(0, 5), DURATIONS, max_size=5),
    after=st.dictionaries(st.integers(0, 5), DURATIONS, max_size=5),
    reset=st.booleans(),
)
def test_whatever_two_readings_say_no_number_is_negative_and_no_mean_is_above_its_maximum(
    before: dict[int, list[float]], after: dict[int, list[float]], reset: bool
) -> None:
    first = read({StatementKey(1, 1, True, k): count(v) for k, v in before.items()}, T0)
    second = read(
        {StatementKey(1, 1, True, k): count(v) for k, v in after.items()},
        T0 + timedelta(minutes=1),
        reset_at=T0 + timedelta(seconds=30) if reset else RESET,
    )
    for found in build_window(first, second).activities.values():
        assert found.calls > 0
        assert min(found.total_s, found.mean_s, found.stddev_s, found.max_s, found.rows, found.temp_bytes) >= 0


def test_a_reset_of_all_counters_starts_the_window_there_on_our_clock() -> None:
    # More of everything than before, so that only the instant of the reset tells.
    first = read({KEY: count([0.5] * 3)}, T0, ahead=timedelta(hours=7))
    second = read(
        {KEY: count([1.0] * 9)},
        T0 + timedelta(minutes=10),
        reset_at=T0 + timedelta(hours=7, minutes=4),
        ahead=timedelta(hours=7),
    )
    window = build_window(first, second)
    assert window.reset
    assert window.start == T0 + timedelta(minutes=4)
    assert window.activities[KEY].calls == 9


def test_an_entry_that_fell_or_was_born_again_counts_from_zero() -> None:
    fell = build_window(read({KEY: count([5.0] * 9)}, T0), read({KEY: count([1.0] * 4)}, T0 + timedelta(minutes=1)))
    assert (fell.activities[KEY].calls, fell.restarted) == (4, 1)
    # More calls than before but less time: calls alone would hide it.
    cheaper = build_window(read({KEY: count([5.0] * 2)}, T0), read({KEY: count([0.1] * 4)}, T0 + timedelta(minutes=1)))
    assert (cheaper.activities[KEY].calls, cheaper.restarted) == (4, 1)
    # More of everything: only its own birth (since version 1.11) tells.
    born = build_window(
        read({KEY: count([1.0] * 2, since=100.0)}, T0),
        read({KEY: count([2.0] * 4, since=200.0)}, T0 + timedelta(minutes=1)),
    )
    assert (born.activities[KEY].calls, born.restarted) == (4, 1)
    same = build_window(
        read({KEY: count([1.0] * 2, since=100.0)}, T0),
        read({KEY: count([1.0] * 2 + [2.0] * 4, since=100.0)}, T0 + timedelta(minutes=1)),
    )
    assert (same.activities[KEY].calls, same.restarted) == (4, 0)


def test_a_reset_of_the_maxima_alone_leaves_the_maximum_only_bounded() -> None:
    later = Counter(calls=4, total_s=4.0, mean_s=1.0, stddev_s=0.0, max_s=0.5)
    earlier = Counter(calls=2, total_s=2.5, mean_s=1.25, stddev_s=0.0, max_s=2.0)
    found = build_window(read({KEY: earlier}, T0), read({KEY: later}, T0 + timedelta(minutes=1))).activities[KEY]
    assert (found.max_s, found.max_exact) == (1.5, False)


def test_what_did_not_run_is_not_listed_and_what_is_new_counts_whole() -> None:
    new = StatementKey(10, 5, True, 77)
    nested = KEY._replace(toplevel=False)
    other_user = KEY._replace(userid=11)
    first = read({KEY: count([1.0] * 2), nested: count([1.0])}, T0)
    second = read(
        {KEY: count([1.0] * 2), nested: count([1.0] * 3), new: count([0.5]), other_user: count([0.25])},
        T0 + timedelta(minutes=1),
    )
    calls = {key: found.calls for key, found in build_window(first, second).activities.items()}
    assert calls == {nested: 2, new: 1, other_user: 1}


def test_evictions_in_between_are_counted() -> None:
    window = build_window(read({}, T0, evicted=4), read({}, T0 + timedelta(minutes=1), evicted=9))
    assert window.evicted == 5
    assert build_window(read({}, T0, evicted=None), read({}, T0, evicted=9)).evicted is None


@given(
    entries=st.dictionaries(
        st.builds(
            StatementKey, st.integers(0, 2**32), st.integers(0, 2**32), st.booleans(), st.integers(-(2**63), 2**63 - 1)
        ),
        DURATIONS.map(count),
        max_size=20,
    ),
    reset=st.booleans(),
)
def test_a_stored_reading_comes_back_as_it_was(entries: dict[StatementKey, Counter], reset: bool) -> None:
    counters = read(entries, T0, reset_at=RESET if reset else None, evicted=3 if reset else None)
    assert read_snapshot(build_snapshot("shop", counters)) == counters


@pytest.mark.parametrize("head", ["", "{}", "[]", "null", '{"v":1}', '{"v":2}', '{"v":2,"now":"x"}'])
def test_a_damaged_reading_is_none(head: str) -> None:
    whole = build_snapshot("shop", read({KEY: count([1.0])}, T0))
    assert read_snapshot(replace(whole, head=head)) is None


@pytest.mark.parametrize(
    "rows", [{"1/2": "[]"}, {"a/b/c/d": "[1,1,1,1,1,1,1]"}, {"1/2/1/3": "[1,1]"}, {"1/2/1/3": ""}, {"1/2/1/3": "7"}]
)
def test_a_reading_with_a_damaged_row_is_none(rows: dict[str, str]) -> None:
    whole = build_snapshot("shop", read({KEY: count([1.0])}, T0))
    assert read_snapshot(replace(whole, rows=rows)) is None


@given(parts=st.lists(DURATIONS, min_size=1, max_size=5))
def test_what_several_users_did_adds_up_to_what_the_shape_did(parts: list[list[float]]) -> None:
    windows = [build_window(None, read({KEY: count(part)}, T0)).activities for part in parts]
    merged = merge_activities(activities[KEY] for activities in windows if KEY in activities)
    everything = [duration for part in parts for duration in part]
    assert merged is not None
    assert merged.calls == len(everything)
    assert merged.total_s == pytest.approx(math.fsum(everything), abs=1e-6)
    assert merged.stddev_s == pytest.approx(statistics.pstdev(everything), rel=1e-4, abs=1e-3)
    assert merged.max_s == max(everything)
    assert merged.rows == len(everything)


def test_of_nothing_nothing_adds_up() -> None:
    assert merge_activities([]) is None
