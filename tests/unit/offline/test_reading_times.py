"""Time ranges and durations in English and Chinese."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reading.times import Times, read_times
from tests.evals.scoring import NOW


def ranges(times: Times) -> list[str]:
    return [r.value for r in times.ranges] + [d.canonical for d in times.durations if d.role == "range"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("in the last half hour", "last_30min"),
        ("past 45 minutes", "last_45min"),
        ("since two hours ago", "last_2h"),
        ("over the last 3 days", "last_3d"),
        ("during the last hour and a half", "last_90min"),
        ("in the past two and a half hours", "last_150min"),
        ("last couple of hours", "last_2h"),
        ("last quarter of an hour", "last_15min"),
        ("in the last week", "last_1w"),
        ("last month", "last_30d"),
        ("last 1h30m", "last_90min"),
        ("the last twenty-five minutes", "last_25min"),
        ("last_2h", "last_2h"),
        ("today", "today"),
        ("since midnight", "today"),
        ("yesterday", "yesterday"),
        ("since yesterday", "2026-03-09T00:00:00Z/2026-03-10T12:00:00Z"),
        ("this week", "2026-03-09T00:00:00Z/2026-03-10T12:00:00Z"),
        ("on 2026-03-01", "2026-03-01T00:00:00Z/2026-03-02T00:00:00Z"),
        ("between 10:00 and 11:30", "2026-03-10T10:00:00Z/2026-03-10T11:30:00Z"),
        ("between 22:00 and 23:00", "2026-03-09T22:00:00Z/2026-03-09T23:00:00Z"),
        ("from 23:00 to 01:00", "2026-03-09T23:00:00Z/2026-03-10T01:00:00Z"),
        ("since 9:15", "2026-03-10T09:15:00Z/2026-03-10T12:00:00Z"),
        ("2026-03-01T10:00Z/2026-03-01T11:00Z", "2026-03-01T10:00Z/2026-03-01T11:00Z"),
        ("between 2026-03-01T10:00Z and 2026-03-01T11:00Z", "2026-03-01T10:00:00Z/2026-03-01T11:00:00Z"),
        ("from 2026-03-01 10:00 to 2026-03-01 11:00 utc", "2026-03-01T10:00:00Z/2026-03-01T11:00:00Z"),
        ("between 2026-03-01T10:00+02:00 and 2026-03-01T11:00Z", "2026-03-01T08:00:00Z/2026-03-01T11:00:00Z"),
        ("from 2026-03-01 to 2026-03-02", "2026-03-01T00:00:00Z/2026-03-03T00:00:00Z"),
        ("从2026-03-01 10:00到2026-03-01 11:00", "2026-03-01T10:00:00Z/2026-03-01T11:00:00Z"),
        ("过去30分钟", "last_30min"),
        ("最近两小时", "last_2h"),
        ("近半小时", "last_30min"),
        ("最近一个半小时", "last_90min"),
        ("过去两个半小时", "last_150min"),
        ("最近一刻钟", "last_15min"),
        ("45分钟内", "last_45min"),
        ("今天", "today"),
        ("昨天", "yesterday"),
        ("前天", "2026-03-08T00:00:00Z/2026-03-09T00:00:00Z"),
        ("最近一天", "last_1d"),
        ("近十五分钟", "last_15min"),
        ("过去半天", "last_12h"),
    ],
)
def test_time_ranges_are_read(text: str, wanted: str) -> None:
    times = read_times(f"slow queries {text}", NOW)
    assert ranges(times) == [wanted]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("slower than 500 ms", 0.5),
        ("longer than 2 seconds", 2),
        ("over 1.5s", 1.5),
        ("more than half a second", 0.5),
        ("at least 3 s", 3),
        ("> 250ms", 0.25),
        (">=2s", 2),
        ("5 seconds or more", 5),
        ("500ms+", 0.5),
        ("slower than 2", 2),
        ("threshold 0.2", 0.2),
        ("a threshold of 300 milliseconds", 0.3),
        ("taking more than a minute", 60),
        ("whatever their duration", 0),
        ("超过2秒", 2),
        ("大于500毫秒", 0.5),
        ("超过半秒", 0.5),
        ("三秒以上", 3),
        ("阈值0.5秒", 0.5),
        ("大于3s的", 3),
    ],
)
def test_thresholds_are_read_and_are_no_time_ranges(text: str, seconds: float) -> None:
    times = read_times(f"queries {text} ", NOW)
    assert [d.seconds for d in times.durations if d.role == "threshold"] == [seconds]
    assert ranges(times) == []


def test_a_threshold_and_a_range_in_one_sentence_are_kept_apart() -> None:
    for text in (
        "over 2 seconds over the last two hours",
        "over the last two hours, over 2 seconds",
        "过去两小时超过2秒",
    ):
        times = read_times(text, NOW)
        assert ranges(times) == ["last_2h"], text
        assert [d.seconds for d in times.durations if d.role == "threshold"] == [2], text


@pytest.mark.parametrize(
    "text", ["last night", "this morning", "on Monday", "a few hours ago", "昨晚", "今天上午", "周末"]
)
def test_times_that_cannot_be_placed_are_reported(text: str) -> None:
    assert read_times(text, NOW).unclear


@pytest.mark.parametrize(
    "text", ["the last one", "top 5", "version 18.1", "port 5432", "explain row 2", "the second query"]
)
def test_numbers_without_a_unit_are_no_times(text: str) -> None:
    assert read_times(text, NOW) == Times()


@given(st.integers(1, 999), st.sampled_from(["s", "min", "h", "d", "w"]), st.booleans())
def test_any_canonical_range_survives_a_sentence_around_it(count: int, unit: str, chinese: bool) -> None:
    words = {"s": "秒", "min": "分钟", "h": "小时", "d": "天", "w": "周"}
    said = f"过去{count}{words[unit]}的慢查询" if chinese else f"slow queries in the last {count} {unit}"
    assert ranges(read_times(said, NOW)) == [f"last_{count}{unit}"]


@given(st.text(max_size=120))
def test_reading_never_fails_and_spans_stay_inside_the_text(text: str) -> None:
    times = read_times(text, NOW)
    assert all(0 <= a < b <= len(text) for a, b in times.spans())
