"""What tests of the outgoing side share: a clock that goes by itself, and an outbound side on the local workspace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from adapters.chat import Author, Reply, ThreadRef
from adapters.slack.client import SlackClient
from adapters.slack.outbound import SlackOutbound
from tests.servers.slack import SlackServer

ALICE = Author(id="U1ALICE", name="alice")


class HandClock:
    """Time that moves when a test turns it, and when something sleeps on it.

    ``stalls`` are seconds by which the next sleeps take too long; ``reads_until_stall`` lets the clock jump by ten
    seconds after so many looks at it, as for a process that stands still while it does not sleep.
    """

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.slept: list[float] = []
        self.stalls: list[float] = []
        self.reads_until_stall = 0

    def monotonic(self) -> float:
        if self.reads_until_stall:
            self.reads_until_stall -= 1
            if not self.reads_until_stall:
                self.seconds += 10.0
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds + (self.stalls.pop(0) if self.stalls else 0.0)
        await asyncio.sleep(0)


class TurnedClock(HandClock):
    """Time that moves only when a test turns it; sleepers wake when their time has come."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        woken = asyncio.Event()
        self._sleepers.append((self.seconds + seconds, woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, and what was due run."""
        self.seconds += seconds
        due = [woken for at, woken in self._sleepers if at <= self.seconds]
        self._sleepers = [(at, woken) for at, woken in self._sleepers if at > self.seconds]
        for woken in due:
            woken.set()
        for _ in range(3):
            await asyncio.sleep(0)


@asynccontextmanager
async def open_outbound(
    server: SlackServer, clock: HandClock | None = None, **options: Any
) -> AsyncIterator[SlackOutbound]:
    """The outgoing side of the workspace, on ``clock`` or on real time."""
    time: dict[str, Any] = {"monotonic": clock.monotonic, "sleep": clock.sleep} if clock is not None else {}
    timeout_s = options.pop("call_timeout_s", 20.0)
    client = SlackClient(
        bot_token=server.bot_token, app_token=server.app_token, api_url=server.base_url, timeout_s=timeout_s, **time
    )
    outbound = SlackOutbound(client, identify=client.identify, **time, **options)
    try:
        yield outbound
    finally:
        await outbound.close()
        await client.close()


async def until(predicate: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Wait for something that nothing tells of (a connection that was cut)."""
    async with asyncio.timeout(timeout_s):
        while not predicate():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)


def place(ts: str, channel: str = "C1OPS") -> ThreadRef:
    return ThreadRef(platform="slack", workspace="T0FAKE", channel=channel, thread=ts)


def reply(ts: str, text: str = "hello", key: str = "run-1/1", *, channel: str = "C1OPS", **more: Any) -> Reply:
    return Reply(thread=place(ts, channel), text=text, key=key, **more)
