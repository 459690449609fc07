"""Starts of gateway sessions, counted: a process that crashes again and again must not use them up.

Discord allows a number of starts a day, and resets the token of a bot that goes over it
(docs.discord.com/developers/events/gateway, "Session Start Limit"). Resuming costs nothing. Discord itself keeps the
count, so it holds over restarts and for several processes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from adapters.discord.wire import Wire, number_of, part_of, text_of

log = structlog.get_logger("hermod.discord")

RESERVE = 0.05
"""The share of a day's starts that is never used, so that a count which is a little late does no harm."""

FREE = 0.5
"""While more than this share is left, nobody waits."""

IDENTIFY_GAP_S = 5.0
"""Between two starts in one lane of ``max_concurrency`` (the page above, "Rate Limiting")."""

LEAST_S = 60.0
"""What is in reserve waits at least so long, also when Discord says that the count begins anew just now."""

_TOLD_S = 5.0  # shorter waits are not worth a line


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayInfo:
    """What ``GET /gateway/bot`` told: where the gateway is, how many shards it advises, and the starts that are left.

    ``reset_after_s``: when the count begins anew. ``lanes``: so many starts may happen side by side.
    """

    url: str
    shards: int = 1
    total: int = 1000
    remaining: int = 1000
    reset_after_s: float = 86_400.0
    lanes: int = 1


FetchInfo = Callable[[], Awaitable[GatewayInfo]]
"""Asks ``GET /gateway/bot``. May raise; then nothing is started."""


def parse_gateway(wire: Wire) -> GatewayInfo | None:
    """Read ``GET /gateway/bot``; None when it names no gateway."""
    url, limit = text_of(wire, "url"), part_of(wire, "session_start_limit")
    if not url:
        return None
    if not limit:
        return GatewayInfo(url=url, shards=number_of(wire, "shards") or 1)
    return GatewayInfo(
        url=url,
        shards=number_of(wire, "shards") or 1,
        total=number_of(limit, "total"),
        remaining=number_of(limit, "remaining"),
        reset_after_s=number_of(limit, "reset_after") / 1000,
        lanes=number_of(limit, "max_concurrency") or 1,
    )


def find_wait(info: GatewayInfo) -> float:
    """Return how many seconds to wait before the next start.

    None while enough is left; then longer and longer, so that what is left lasts until the count begins anew; and all
    the time until then for what is in reserve.
    """
    if not info.total:
        return 0.0  # Discord tells no limit
    usable = info.remaining - round(info.total * RESERVE)
    if usable <= 0:
        return max(info.reset_after_s, LEAST_S)
    return 0.0 if info.remaining > info.total * FREE else info.reset_after_s / usable


class StartBudget:
    """Lets one shard at a time start, when it may.

    Args:
        fetch: see ``FetchInfo``.
        gap_s: between two starts in one lane.
        monotonic, sleep: the clock.
    """

    def __init__(
        self,
        fetch: FetchInfo,
        *,
        gap_s: float = IDENTIFY_GAP_S,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._fetch = fetch
        self._gap_s = gap_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._started_at: dict[int, float] = {}
        self.waiting_s = 0.0

    async def take_start(self, shard: int) -> GatewayInfo:
        """Wait until ``shard`` may start. It has to start at once then.

        Returns:
            Where to.

        Raises:
            Whatever ``fetch`` raises.
        """
        async with self._lock:
            info = await self._wait_for_room()
            lane = shard % info.lanes
            before = self._started_at.get(lane)
            pause_s = 0.0 if before is None else before + self._gap_s - self._monotonic()
            if pause_s > 0:
                await self._sleep(pause_s)
            self._started_at[lane] = self._monotonic()
            return info

    async def wait_after_refusal(self) -> None:
        """Wait for a moment, because Discord ended a session: it asks for one to five seconds, at random."""
        await self._sleep(self._gap_s * random.uniform(0.2, 1.0))  # noqa: S311 - spreads load, hides nothing

    async def _wait_for_room(self) -> GatewayInfo:
        while True:
            info = await self._fetch()
            wait_s = find_wait(info)
            if not wait_s:
                return info
            empty = wait_s >= info.reset_after_s
            if wait_s >= _TOLD_S:
                log.warning(
                    "discord_start_waits",
                    wait_s=round(wait_s),
                    starts_left=info.remaining,
                    starts_a_day=info.total,
                    fix="find out why Hermod was started so often; it goes on by itself after the wait",
                )
            self.waiting_s = wait_s
            try:
                await self._sleep(wait_s)
            finally:
                self.waiting_s = 0.0
            if not empty:
                return info
