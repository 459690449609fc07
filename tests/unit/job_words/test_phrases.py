"""Times in words become cron fields, or are refused with what works: nothing is guessed."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.jobs.calendar import BadSchedule, parse_schedule
from bot.jobs.phrases import EXAMPLES, BadPhrase, When, parse_when
from bot.jobs.zones import AMBIGUOUS, resolve_zone

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SUMMER = datetime(2026, 6, 10, 12, 0, tzinfo=UTC)
"""Fourteen weeks of no change of the clocks follow."""

READ = [
    ("every weekday at 9 in Berlin", "0 9 * * MON-FRI", "Europe/Berlin"),
    ("daily at 09:30", "30 9 * * *", None),
    ("every day at 6pm", "0 18 * * *", None),
    ("every day at 12am", "0 0 * * *", None),
    ("every day at 12 p.m.", "0 12 * * *", None),
    ("every monday and thursday at 8am", "0 8 * * MON,THU", None),
    ("Mon, Wed and Fri at 7:45 pm", "45 19 * * MON,WED,FRI", None),
    ("weekly on friday at 17:00", "0 17 * * FRI", None),
    ("Mon-Fri 8:30", "30 8 * * MON-FRI", None),
    ("Friday to Sunday at 8", "0 8 * * FRI,SAT,SUN", None),
    ("weekends at midnight", "0 0 * * SAT,SUN", None),
    ("on the 1st of every month at 7", "0 7 1 * *", None),
    ("every month on the 15th at 10:00", "0 10 15 * *", None),
    ("on the 1st and 15th of each month at 7:00 UTC", "0 7 1,15 * *", "UTC"),
    ("the last day of the month at 18:00", "0 18 L * *", None),
    ("the second tuesday of every month at 9", "0 9 * * TUE#2", None),
    ("last friday of the month at 17:00", "0 17 * * 5L", None),
    ("last working day of the month at noon", "0 12 LW * *", None),
    ("hourly", "0 * * * *", None),
    ("every 15 minutes", "*/15 * * * *", None),
    ("every half hour", "*/30 * * * *", None),
    ("every 15 minutes on weekdays", "*/15 * * * MON-FRI", None),
    ("every 2 hours", "0 */2 * * *", None),
    ("at 9 every morning (UTC)", "0 9 * * *", "UTC"),
    ("every evening at 6", "0 18 * * *", None),
    ("every night at 11", "0 23 * * *", None),
    ("nightly at 2:30", "30 2 * * *", None),
    ("Mondays 8:15 Europe/Berlin", "15 8 * * MON", "Europe/Berlin"),
    ("weekdays at 8:15 in san francisco", "15 8 * * MON-FRI", "America/Los_Angeles"),
    ("tuesdays at noon, Tokyo time", "0 12 * * TUE", "Asia/Tokyo"),
    ("in Berlin, every day at 9", "0 9 * * *", "Europe/Berlin"),
    ("每天早上9点", "0 9 * * *", None),
    ("每天下午3点半", "30 15 * * *", None),
    ("每个工作日上午9点（柏林时间）", "0 9 * * MON-FRI", "Europe/Berlin"),
    ("每周一8点半", "30 8 * * MON", None),
    ("每周一、周三和周五下午三点", "0 15 * * MON,WED,FRI", None),
    ("每周一到周五9:30", "30 9 * * MON-FRI", None),
    ("每月1号7点", "0 7 1 * *", None),
    ("每月最后一天18点", "0 18 L * *", None),
    ("每１５分钟", "*/15 * * * *", None),
    ("每两小时", "0 */2 * * *", None),
    ("每晚8点北京时间", "0 20 * * *", "Asia/Shanghai"),
    ("0 9 * * mon-fri", "0 9 * * MON-FRI", None),
    ("*/15 9-17 * * 1-5 Europe/Berlin", "*/15 9-17 * * 1-5", "Europe/Berlin"),
    ("0 18 L * *", "0 18 L * *", None),
]


@pytest.mark.parametrize(("text", "cron", "zone"), READ, ids=[text for text, *_ in READ])
def test_words_become_cron_fields_and_a_zone(text: str, cron: str, zone: str | None) -> None:
    assert parse_when(text) == When(cron=cron, zone=zone, rest="")
    parse_schedule(cron, zone or "UTC", now=NOW)


@pytest.mark.parametrize(
    ("text", "cron", "zone", "rest"),
    [
        (
            "every weekday at 9 in Berlin post the database report here",
            "0 9 * * MON-FRI",
            "Europe/Berlin",
            "post the database report here",
        ),
        ("post the daily report here every weekday at 9am", "0 9 * * MON-FRI", None, "post the daily report here"),
        ("every weekday, post the report at 9 Berlin time", "0 9 * * MON-FRI", "Europe/Berlin", "post the report"),
        ("every day at 9 in this channel", "0 9 * * *", None, "in this channel"),
        ("a report about Berlin every day at 9", "0 9 * * *", None, "a report about Berlin"),
        ("show the first 5 queries every day at 9", "0 9 * * *", None, "show the first 5 queries"),
        (
            "每个工作日早上9点（柏林）在这里发数据库报告",
            "0 9 * * MON-FRI",
            "Europe/Berlin",
            "在这里发数据库报告",
        ),
        ("0 9 * * MON-FRI Europe/Berlin check the shop", "0 9 * * MON-FRI", "Europe/Berlin", "check the shop"),
    ],
)
def test_what_is_no_schedule_stays_as_the_rest(text: str, cron: str, zone: str | None, rest: str) -> None:
    assert parse_when(text) == When(cron=cron, zone=zone, rest=rest)


def test_a_long_task_keeps_its_end() -> None:
    task = " ".join(f"word{n}" for n in range(1000))
    assert parse_when(f"every day at 9 UTC {task}").rest == task


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no schedule"),
        ("show me the slow queries", "no schedule"),
        ("at 9", "not on which days"),
        ("tomorrow at 9", "not on which days"),
        ("every weekday", "at what time"),
        ("every morning", "at what time"),
        ("every monday 9", "at what time"),
        ("weekly at 9", "on which day"),
        ("monthly at 9", "on which day"),
        ("每周9点", "on which day"),
        ("every 7 minutes", "0, 7, ... 56 in each hour, and then at 0 again, 4 minutes later"),
        ("every 5 hours", "0, 5, ... 20 each day, and then at 0 again, 4 hours later"),
        ("every 90 minutes", "does not divide the hour"),
        ("每7分钟", "does not divide the hour"),
        ("25:00", "'25:00'"),
        ("every day at 25:00", "hours are 0 to 23"),
        ("every day at 24:00", "midnight is 0:00"),
        ("every day at 9:75", "hours are 0 to 23"),
        ("every day at 13pm", "hours are 0 to 23"),
        ("每天25点", "hours are 0 to 23"),
        ("every morning at 17:00", "not in the morning"),
        ("every second tuesday at 9", "every second"),
        ("every other day at 9", "every second"),
        ("every 2 weeks on friday at 9", "every second"),
        ("every 3 days at 9", "every second"),
        ("biweekly on friday at 9", "every second"),
        ("隔天9点", "every second"),
        ("每两周周五9点", "every second"),
        ("every quarter at 9", "every third month"),
        ("on the 31st of every month at 9", "last day of the month"),
        ("monday at 9 and thursday at 10", "more than one"),
        ("at 9 on mondays at 17", "more than one"),
        ("every day at 9:00 and monday at 10:30", "more than one"),
        ("every day on weekdays at 9", "more than one"),
        ("on the 1st of every month on mondays at 9", "more than one"),
        ("hourly at 9", "more than one"),
        ("every weekday except friday at 9", "no exceptions"),
        ("every day at 9 until june", "no exceptions"),
        ("every day at 9 and 17", "no exceptions"),
        ("every 15 minutes from 9 to 17", "*/15 9-17 * * MON-FRI"),
        ("every day at 9 CST", "America/Chicago, Asia/Shanghai"),
        ("every day at 9 IST", "Asia/Kolkata"),
        ("every day at 9 in Atlantis", "no time zone 'Atlantis'"),
        ("every day at 9 in Berln", "did you mean 'Europe/Berlin'"),
        ("every day at 9 in Berlin, Tokyo time", "more than one time zone"),
        ("0 25 * * *", "bad hour"),
        ("0 0 30 2 *", "cannot be read"),
        ("0 9 * * * Europe/Atlantis", "no time zone"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(BadPhrase) as refused:
        parse_when(text)
    assert said in str(refused.value)


def test_a_refusal_shows_forms_that_work() -> None:
    with pytest.raises(BadPhrase) as refused:
        parse_when("every now and then")
    assert EXAMPLES in str(refused.value)
    for example in EXAMPLES.split("'")[1::2]:
        assert parse_when(example).rest == ""


@pytest.mark.parametrize("short", AMBIGUOUS)
def test_an_abbreviation_of_several_places_is_refused_with_zones_that_can_be_written(short: str) -> None:
    for text in (short, short.lower(), f"{short} time"):
        with pytest.raises(BadSchedule) as refused:
            resolve_zone(text)
        assert all(choice in str(refused.value) for choice in AMBIGUOUS[short])
    assert [resolve_zone(choice) for choice in AMBIGUOUS[short]] == list(AMBIGUOUS[short])


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("CET", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("New York", "America/New_York"),
        ("柏林时间", "Europe/Berlin"),
        ("北京", "Asia/Shanghai"),
    ],
)
def test_a_zone_alone_is_a_name_a_city_or_an_abbreviation(text: str, zone: str) -> None:
    assert resolve_zone(text) == zone


def test_times_that_are_the_same_everywhere_need_no_zone() -> None:
    assert not parse_when("every 15 minutes").needs_zone
    assert not parse_when("hourly").needs_zone
    assert parse_when("every 2 hours").needs_zone
    assert parse_when("every 15 minutes on weekdays").needs_zone


def test_b085_a_named_zone_stays_with_the_hour_in_summer_and_winter() -> None:
    when = parse_when("every day at 6 in Berlin")
    assert when.zone is not None
    schedule = parse_schedule(when.cron, when.zone, now=NOW)
    winter, summer = (schedule.next(datetime(2026, month, 1, tzinfo=UTC)) for month in (1, 7))
    assert winter is not None
    assert summer is not None
    assert (winter.at.hour, summer.at.hour) == (5, 4)


def test_every_phrase_of_the_page_reads_as_its_cron_fields() -> None:
    page = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text(encoding="utf-8")
    table = page.partition("| works | cron fields |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    assert len(rows) >= 6
    for words, fields in rows:
        read = [parse_when(phrase).cron for phrase in words.split("`")[1::2]]
        assert list(dict.fromkeys(read)) == fields.split("`")[1::2]


# -- for every text --------------------------------------------------------------------------------

ENGLISH = (
    "every each day weekday monday tue fri second last first on the of month at 9 17:30 6pm 25:00 12 noon midnight "
    "hourly 15 minutes 7 hours in Berlin UTC CST ( ) , and except until from to Europe/Berlin 0 * */15 MON-FRI L # @ "
    "report daily morning nights"
)
CHINESE = "每 每天 每周一 到 周五 每月 1号 早上 9点 半 （柏林） 隔 在 工作日"
WORDS = st.sampled_from(f"{ENGLISH} {CHINESE}".split())


@given(
    st.one_of(
        st.text(max_size=80), st.lists(WORDS, max_size=14).map(" ".join), st.lists(WORDS, max_size=9).map("".join)
    )
)
def test_any_text_is_a_schedule_that_works_or_is_refused(text: str) -> None:
    try:
        when = parse_when(text)
    except BadPhrase:
        return
    parse_schedule(when.cron, when.zone or "UTC", now=NOW)


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZONES = ("", "Europe/Berlin", "Asia/Tokyo", "America/New_York", "UTC")
CITIES = {
    "Europe/Berlin": "in Berlin",
    "Asia/Tokyo": "Tokyo time",
    "America/New_York": "(New York)",
    "UTC": "UTC",
    "": "",
}


@given(
    st.sets(st.integers(0, 6), min_size=1),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(ZONES),
    st.sampled_from(["on {}", "every {}", "{}"]),
    st.booleans(),
)
def test_a_phrase_that_is_built_of_parts_reads_back(
    days: set[int], hour: int, minute: int, zone: str, form: str, time_first: bool
) -> None:
    named = form.format(" and ".join(DAYS[day] for day in sorted(days)))
    time = f"at {hour}:{minute:02}"
    phrase = f"{time} {named} {CITIES[zone]}" if time_first else f"{named} {time} {CITIES[zone]}"
    when = parse_when(phrase)
    assert (when.zone, when.rest) == (zone or None, "")
    schedule = parse_schedule(when.cron, zone or "UTC", now=NOW)
    times = schedule.after(SUMMER)
    found = [next(times).local for _ in range(14)]
    assert {date.fromisoformat(local[:10]).weekday() for local in found} == days
    assert {local[11:16] for local in found} == {f"{hour:02}:{minute:02}"}


@given(st.integers(1, 200), st.sampled_from(["minutes", "hours"]))
def test_steps_are_even_or_refused(count: int, unit: str) -> None:
    whole = 60 if unit == "minutes" else 24
    try:
        when = parse_when(f"every {count} {unit}")
    except BadPhrase:
        assert count >= whole or whole % count
        return
    times = parse_schedule(when.cron, "UTC", now=NOW).after(NOW)
    found = [next(times).at for _ in range(whole + 1)]
    gaps = {(later - earlier).total_seconds() for earlier, later in itertools.pairwise(found)}
    assert gaps == {count * (60 if unit == "minutes" else 3600)}
