"""The names of jobs that are suggested while somebody types: of the channel, one's own, and as they are by now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest

from adapters.chat import Author, ThreadRef
from bot.jobs.desk import Asking
from bot.jobs.names import FRESH_S, JobNames
from bot.storage.base import Store
from tests.integration.jobs.desk import ANNA, BO, BY_ANNA, BY_BO, THREAD, Desk, HandClock

PATIENCE_S = 60.0


@dataclass
class NotingClock(HandClock):
    """Notes for how long was waited."""

    waits: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await super().sleep(seconds)


@pytest.fixture
def clock() -> NotingClock:
    return NotingClock()


@pytest.fixture
async def names(store: Store, clock: NotingClock) -> AsyncIterator[JobNames]:
    names = JobNames(store, clock)
    keeping = asyncio.create_task(names.keep())
    yield names
    keeping.cancel()
    await asyncio.wait({keeping})
    assert keeping.cancelled()


def asking(author: Author = ANNA, **place: str) -> Asking:
    return Asking(thread=replace(THREAD, **place), author=author)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - asking is what has it read again
            await asyncio.sleep(0.005)


async def test_jobs_of_the_channel_and_ones_own_of_the_workspace_are_known_as_they_are_by_now(
    desk: Desk, names: JobNames
) -> None:
    await desk.make("weekly")
    await desk.make("daily", by=BY_BO)
    await until(lambda: names.find(asking()) == ("daily", "weekly"))
    assert names.find(asking(BO)) == ("daily", "weekly")
    assert names.find(asking(channel="C4")) == ("weekly",)
    assert names.find(asking(BO, channel="C4")) == ("daily",)
    assert names.find(asking(workspace="T2")) == ()
    await desk.keeper.delete("weekly", by=BY_ANNA)
    await until(lambda: names.find(asking()) == ("daily",))


async def test_many_keystrokes_are_one_look_at_the_storage(desk: Desk, names: JobNames, clock: NotingClock) -> None:
    await desk.make("daily")
    await until(lambda: names.find(asking()))
    assert clock.waits
    assert set(clock.waits) == {FRESH_S}, "it was asked at once, and looked only after that time"
    clock.turn(minutes=1)
    before = len(clock.waits)
    await until(lambda: names.find(asking()) and len(clock.waits) > before + 1)
    assert clock.waits[before:].count(0.0) <= 1


async def test_names_of_before_are_suggested_while_the_storage_fails(
    desk: Desk, names: JobNames, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    await desk.make("daily")
    await until(lambda: names.find(asking()))
    await store.close()
    said: list[str] = []

    def told() -> bool:
        names.find(asking())
        said.append(capsys.readouterr().out)
        return any("job_names_not_read" in text for text in said)

    await until(told)
    assert names.find(asking()) == ("daily",)


def test_before_anything_was_read_nothing_is_suggested(store: Store, clock: NotingClock) -> None:
    thread = ThreadRef(platform="slack", workspace="T1", channel="C1", thread="1")
    assert JobNames(store, clock).find(Asking(thread=thread, author=ANNA)) == ()
