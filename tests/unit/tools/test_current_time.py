from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.tools.builtin import register_builtin
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from tests.unit.tools.setting import Failure, Run, TurnedClock, call, failure

registry = ToolRegistry()
register_builtin(registry)
executor = ToolExecutor(registry)


async def tell(start: datetime, **arguments: object) -> dict[str, object]:
    run = Run(clock=TurnedClock(start))
    result = await executor.run_one(run.ctx, call("current_time", "c1", **arguments))
    assert result.ok, result.content
    read = json.loads(result.content)
    assert isinstance(read, dict)
    return read


async def refuse(zone: str) -> Failure:
    return failure(await executor.run_one(Run().ctx, call("current_time", "c1", zone=zone)))


async def test_without_a_zone_it_tells_utc() -> None:
    assert await tell(datetime(2026, 7, 1, 12, 0, 0, 987654, tzinfo=UTC)) == {
        "ok": True,
        "zone": "UTC",
        "time": "2026-07-01T12:00:00+00:00",
        "utc": "2026-07-01T12:00:00Z",
        "weekday": "Wednesday",
    }


@pytest.mark.parametrize(
    ("utc", "zone", "local", "weekday"),
    [
        ("2026-03-29T00:59:59", "Europe/Berlin", "2026-03-29T01:59:59+01:00", "Sunday"),
        ("2026-03-29T01:00:00", "Europe/Berlin", "2026-03-29T03:00:00+02:00", "Sunday"),
        ("2026-10-25T00:30:00", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "Sunday"),
        ("2026-10-25T01:30:00", "Europe/Berlin", "2026-10-25T02:30:00+01:00", "Sunday"),
        ("2026-07-01T20:00:00", "Asia/Shanghai", "2026-07-02T04:00:00+08:00", "Thursday"),
        ("2026-07-01T20:00:00", "Asia/Kathmandu", "2026-07-02T01:45:00+05:45", "Thursday"),
        ("2026-07-01T02:00:00", "America/New_York", "2026-06-30T22:00:00-04:00", "Tuesday"),
    ],
)
async def test_a_zone_is_told_with_its_summer_time(utc: str, zone: str, local: str, weekday: str) -> None:
    told = await tell(datetime.fromisoformat(utc).replace(tzinfo=UTC), zone=zone)
    assert (told["time"], told["utc"], told["weekday"]) == (local, f"{utc}Z", weekday)


@pytest.mark.parametrize(
    ("zone", "near"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Asia/Beijing/Shanghai", "Asia/Shanghai"),
    ],
)
async def test_an_unknown_zone_is_told_with_its_neighbours(zone: str, near: str) -> None:
    told = await refuse(zone)
    assert told.code == "unknown_zone"
    assert near in told.message


@pytest.mark.parametrize("zone", ["", "America", "../../etc/passwd", "/etc/passwd", "\0", "x" * 10_000, "Mars/Base"])
async def test_what_is_no_zone_is_refused(zone: str) -> None:
    told = await refuse(zone)
    assert told.code == "unknown_zone"
    assert len(told.message) < 300


@settings(max_examples=40, deadline=None)
@given(zone=st.text(max_size=30))
async def test_no_text_crashes_it(zone: str) -> None:
    result = await executor.run_one(Run().ctx, call("current_time", "c1", zone=zone))
    assert result.error_code in (None, "unknown_zone")


def test_the_schema_marks_the_zone() -> None:
    properties = registry.specs(["current_time"])[0].parameters["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == ["zone"]
    assert properties["zone"]["format"] == "timezone"
    assert properties["zone"]["default"] == "UTC"
