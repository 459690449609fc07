"""Tools that every agent can use: arithmetic and the time."""

from __future__ import annotations

import difflib
import math
import zoneinfo
from datetime import UTC, tzinfo
from typing import Annotated

from pydantic import Field

from agent_core.context import RunContext
from agent_core.errors import ModelRetry, ToolFailed
from agent_core.llm.types import ToolExample
from agent_core.tools.outputs import register_read_output
from agent_core.tools.registry import ToolRegistry
from reading.arithmetic import NoResult, Unreadable, Value, calculate

_ZONE_CHARS = 64


async def calculator(
    expression: Annotated[
        str,
        Field(
            max_length=1_000,
            json_schema_extra={
                "format": "math-expression",
                "examples": ["2**10 + math.sqrt(144)", "round(0.17 * 2340)"],
            },
        ),
    ],
) -> dict[str, object]:
    """Compute an arithmetic expression exactly. Use it for every calculation instead of computing yourself.

    It knows + - * / // % ** and parentheses, all functions and constants of Python's math module (bare or as
    math.x), and abs, round, min, max, sum. % is modulo and ^ is not a power: 17 percent of 2340 is
    17/100 * 2340, two to the tenth is 2**10. It has no variables and no comparisons.

    Args:
        expression: the expression in Python's notation, with every operator written out.

    Returns:
        {"ok": true, "expression": ..., "result": number}. "inf", "-inf" and "nan" are given as text.

    Example:
        calculator(expression="2**10 + math.sqrt(144)") gives 1036.0
    """
    try:
        return {"ok": True, "expression": expression, "result": _speak(calculate(expression))}
    except Unreadable as error:
        raise ModelRetry(str(error)) from error
    except NoResult as error:
        raise ToolFailed(str(error), code=error.code, fix=error.fix) from error


def _speak(value: Value) -> object:
    """Write what JSON has no number for as text."""
    match value:
        case list():
            return [_speak(part) for part in value]
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def current_time(
    ctx: RunContext,
    zone: Annotated[
        str, Field(json_schema_extra={"format": "timezone", "examples": ["Europe/Berlin", "Asia/Shanghai"]})
    ] = "UTC",
) -> dict[str, object]:
    """Tell the present date and time in a time zone. You do not know the time otherwise; never guess it.

    Args:
        zone: the IANA name of the zone, Area/City; summer time is taken care of.

    Returns:
        {"ok": true, "zone": ..., "time": ISO 8601 with offset, "utc": the same instant in UTC, "weekday": ...}

    Example:
        current_time(zone="Europe/Berlin") gives {"time": "2026-07-01T14:00:00+02:00", "weekday": "Wednesday", ...}
    """
    now = ctx.clock.now().replace(microsecond=0)
    local = now.astimezone(_load_zone(zone))
    return {
        "ok": True,
        "zone": zone,
        "time": local.isoformat(),
        "utc": now.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "weekday": _WEEKDAYS[local.weekday()],  # strftime would speak the machine's language
    }


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _load_zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z"):
        return UTC  # known also where the system has no zone data
    if len(name) <= _ZONE_CHARS:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # a folder's name is an OSError
            pass
    known = zoneinfo.available_timezones()
    if not known:
        raise ToolFailed(
            "this machine has no time zone data, so only UTC is known",
            code="no_zone_data",
            fix="install the system package tzdata",
        )
    near = _near_zones(name[:_ZONE_CHARS], sorted(known))
    raise ToolFailed(
        f"{name[:_ZONE_CHARS]!r} is not a time zone" + (f"; did you mean {' or '.join(near)}?" if near else ""),
        code="unknown_zone",
        fix="give an IANA name such as Europe/Berlin, or UTC",
    )


def _near_zones(name: str, known: list[str]) -> list[str]:
    """Find zones by their whole name or by the city alone, whatever the case and the spaces."""
    asked = name.strip().replace(" ", "_").casefold()
    whole = {zone.casefold(): zone for zone in known}
    cities = {zone.rpartition("/")[2].casefold(): zone for zone in known if "/" in zone}
    found = [names[asked] for names in (whole, cities) if asked in names]
    found += [whole[near] for near in difflib.get_close_matches(asked, whole, n=3, cutoff=0.7)]
    found += [cities[near] for near in difflib.get_close_matches(asked.rpartition("/")[2], cities, n=3, cutoff=0.75)]
    return list(dict.fromkeys(found))[:3]


def register_builtin(registry: ToolRegistry) -> None:
    """Register ``calculator``, ``current_time`` and ``read_output``.

    Raises:
        ConfigError: one of the names is taken.
    """
    registry.register(
        calculator,
        trusted=True,
        cache_ttl_s=86_400,
        examples=[
            ToolExample(question="what is 2**10 + math.sqrt(144)?", arguments={"expression": "2**10 + math.sqrt(144)"}),
            ToolExample(question="calculate 17/100 * 2340", arguments={"expression": "17/100 * 2340"}),
            ToolExample(question="compute (3.5 + 4) * 12", arguments={"expression": "(3.5 + 4) * 12"}),
            ToolExample(question="计算 128 * 37", arguments={"expression": "128 * 37"}),
        ],
    )
    registry.register(
        current_time,
        trusted=True,
        examples=[
            ToolExample(question="what time is it?", arguments={}),
            ToolExample(question="what time is it in Asia/Shanghai?", arguments={"zone": "Asia/Shanghai"}),
            ToolExample(question="which day is today?", arguments={}),
            ToolExample(question="现在几点?", arguments={}),
        ],
    )
    register_read_output(registry)
