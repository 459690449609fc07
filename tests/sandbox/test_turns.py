"""Whose turn it is in the sandbox."""

from __future__ import annotations

import asyncio

import pytest

from bot.tools.python_sandbox.turns import Turns, count_places
from bot.tools.python_sandbox.types import SandboxUnavailable


class Runs:
    """Runs that last until they are told to end, and the order in which they began."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.began: list[str] = []
        self.may_end: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str) -> None:
        """Ask for a turn; the first letter is the thread."""
        self.may_end[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(name))
        await settle()

    async def end(self, name: str) -> None:
        """Let a run end."""
        self.may_end[name].set()
        await self.tasks[name]
        await settle()

    async def _run(self, name: str) -> None:
        async with self.turns.take(name[0]):
            self.began.append(name)
            await self.may_end[name].wait()


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_thread_with_many_runs_does_not_hold_up_another() -> None:
    runs = Runs(Turns(1))
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        await runs.ask(name)
    for at in range(6):
        assert len(runs.began) == at + 1
        await runs.end(runs.began[-1])
    assert runs.began == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_one_thread_has_one_place_however_many_are_free() -> None:
    runs = Runs(Turns(4))
    for name in ("a1", "a2", "b1"):
        await runs.ask(name)
    assert runs.began == ["a1", "b1"]
    await runs.end("a1")
    assert runs.began == ["a1", "b1", "a2"]


async def test_cancelling_leaves_the_queue_or_gives_the_place_back() -> None:
    runs = Runs(Turns(1))
    for name in ("a1", "b1", "c1", "d1"):
        await runs.ask(name)
    runs.tasks["b1"].cancel()
    await settle()
    runs.tasks["a1"].cancel()
    await settle()
    assert runs.began == ["a1", "c1"]
    # Cancelled in the moment in which it was given the place.
    runs.may_end["c1"].set()
    await runs.tasks["c1"]
    runs.tasks["d1"].cancel()
    await settle()
    await runs.ask("e1")
    assert runs.began[-1] == "e1"
    await runs.end("e1")
    await asyncio.gather(*runs.tasks.values(), return_exceptions=True)


async def test_a_queue_that_is_full_says_so() -> None:
    runs = Runs(Turns(1, most_waiting=1))
    await runs.ask("a1")
    await runs.ask("b1")
    with pytest.raises(SandboxUnavailable, match="wait"):
        async with runs.turns.take("c"):
            pass
    await runs.end("a1")
    await runs.end("b1")


def test_there_are_two_places_for_each_core() -> None:
    assert count_places() >= 2
    assert count_places() % 2 == 0
