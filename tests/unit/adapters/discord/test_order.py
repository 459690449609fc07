from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from adapters.discord.order import Lanes


def note(seen: list[str], what: str, gate: asyncio.Event | None = None) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        if gate is not None:
            await gate.wait()
        seen.append(what)

    return work


async def test_one_key_keeps_its_order_and_does_not_hold_up_another() -> None:
    lanes, seen, gate = Lanes(), list[str](), asyncio.Event()
    lanes.put("a", note(seen, "a1", gate))
    lanes.put("a", note(seen, "a2"))
    lanes.put("b", note(seen, "b1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == ["b1"]
    gate.set()
    assert await lanes.drain(5.0) == 0
    assert seen == ["b1", "a1", "a2"]
    assert lanes.count == 0


async def test_work_that_fails_is_told_and_does_not_end_its_key(caplog: pytest.LogCaptureFixture) -> None:
    lanes, seen = Lanes(), list[str]()

    async def fail() -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        lanes.put("a", fail)
        lanes.put("a", note(seen, "a2"))
        assert await lanes.drain(5.0) == 0
    assert seen == ["a2"]


async def test_what_is_too_much_is_not_taken() -> None:
    lanes, seen, gate = Lanes(most=2), list[str](), asyncio.Event()
    assert lanes.put("a", note(seen, "a1", gate))
    assert lanes.put("a", note(seen, "a2"))
    assert not lanes.put("b", note(seen, "b1"))
    gate.set()
    await lanes.drain(5.0)
    assert seen == ["a1", "a2"]
    assert lanes.put("b", note(seen, "b1"))
    await lanes.drain(5.0)


async def test_what_does_not_end_in_time_is_ended_and_counted() -> None:
    lanes, seen = Lanes(), list[str]()
    never = asyncio.Event()
    lanes.put("a", note(seen, "a1", never))
    lanes.put("a", note(seen, "a2"))
    lanes.put("b", note(seen, "b1"))
    assert await lanes.drain(0.01) == 2
    assert seen == ["b1"]
    assert lanes.count == 0
