"""When a call to Discord may go out: one scheduler, a lane for every kind of call in every channel.

Discord counts calls per bucket in windows, tells the state of the window with each answer, and allows 50 calls a
second over all (docs.discord.com/developers/topics/rate-limits). Creating and editing messages share one lane here:
whether they share a bucket is not documented, and a lane that is too narrow costs less than a refusal. Until the
first answer a lane holds what is known of messages, five in five seconds. No lane waits for another one.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

PROGRESS = 2
"""The priority of what is worth nothing when it comes late. It never waits, and leaves a turn for the rest."""

CALLS, SPAN_S = 5, 5.0
"""What a lane holds until Discord told."""

GLOBAL_CALLS, GLOBAL_SPAN_S = 45, 1.0
"""Over all lanes. Discord allows 50; the rest is for the calls that the library makes by itself. A call counts until
a second after its *answer*: Discord counted it some time before that, so its own window never holds more than ours."""

GLOBAL_LEFT = 10
"""Of these, progress leaves so many; of a smaller number as large a part."""

RECOVERY_S = 2.0
"""After a refusal of calls over all lanes half as many go out, and one more after each such time: somebody else, a
second process or a program with the same token, makes calls too."""

LOOK_S = 0.05
"""How often to look for a turn that depends on answers to come."""

MARGIN_S = 0.02
"""Added to what Discord tells, which is rounded."""

MOST_LANES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The state of a bucket, as the headers of an answer tell it."""

    limit: int
    remaining: int
    reset_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """There is no turn in time; ``after_s`` is when there may be one."""

    after_s: float


@dataclass(slots=True)
class _Lane:
    limit: int = CALLS
    left: int = CALLS  # calls that may still begin in this window
    running: int = 0
    told: bool = False  # by Discord's headers
    reset_at: float | None = None  # None: no call of this window was answered yet
    blocked_until: float = 0.0
    waiting: list[tuple[int, int]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def until_turn(self, ticket: tuple[int, int], now: float) -> float | None:
        """Seconds until the turn of ``ticket``; None when that depends on calls that were not answered yet."""
        if self.blocked_until > now:
            return self.blocked_until - now
        self.roll(now)
        ahead = sum(1 for other in self.waiting if other < ticket)
        kept = 1 if ticket[0] >= PROGRESS and self.limit > 1 else 0
        if self.left - kept > ahead:
            return 0.0
        return None if self.reset_at is None else max(self.reset_at - now, 0.0)

    def roll(self, now: float) -> None:
        """Begin the next window when this one is over."""
        if self.reset_at is not None and self.reset_at <= now:
            self.reset_at, self.left = None, max(self.limit - self.running, 0)

    def begin(self) -> None:
        self.left -= 1
        self.running += 1

    def give_back(self) -> None:
        self.left += 1
        self.running -= 1
        self.wake()

    def end(self, window: Window | None, now: float) -> None:
        """One call was answered."""
        self.running -= 1
        if window is not None:
            self._learn(window, now)
        elif self.reset_at is None:
            self.reset_at = now + SPAN_S
        self.wake()

    def _learn(self, window: Window, now: float) -> None:
        reset_at = now + window.reset_after_s + MARGIN_S
        same = self.told and self.reset_at is not None and reset_at <= self.reset_at + window.reset_after_s / 2
        if same:  # answers may come in another order than the calls were counted
            self.left = min(self.left, window.remaining)
        else:
            self.left = max(window.remaining - self.running, 0)
        self.limit, self.told, self.reset_at = max(window.limit, 1), True, reset_at

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def is_idle(self, now: float) -> bool:
        self.roll(now)
        return not (self.running or self.waiting or self.blocked_until > now) and self.reset_at is None


class Turn:
    """Leave to make one call; say how it went with exactly one of the methods."""

    def __init__(self, pace: Pace, lane: _Lane) -> None:
        self._pace = pace
        self._lane = lane
        self._open = True

    def answered(self, window: Window | None = None) -> None:
        """The call was made, or may have been; ``window`` is what its headers told."""
        if self._open:
            self._open = False
            now = self._pace.now()
            self._lane.end(window, now)
            self._pace.end(now)

    def left(self) -> None:
        """The call was made, and nobody waits for its answer any more: Discord may count it a while later."""
        if self._open:
            self._open = False
            now = self._pace.now()
            self._lane.end(None, now)
            self._pace.end(now + GLOBAL_SPAN_S)

    def unused(self) -> None:
        """The call was not made."""
        if self._open:
            self._open = False
            self._lane.give_back()
            self._pace.end(None)

    def refused(self, after_s: float, *, everywhere: bool = False) -> None:
        """Discord asks to wait: nothing of this kind, or nothing at all, goes out for ``after_s`` seconds."""
        self._pace.block(None if everywhere else self._lane, after_s)
        self.answered()


class Pace:
    """Gives turns. Safe to use concurrently within one event loop.

    Args:
        monotonic, sleep: the clock; ``sleep`` must let that clock go on.
    """

    def __init__(self, *, monotonic: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self.now = monotonic
        self._sleep = sleep
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._tickets = count()
        self._running = 0  # calls of all lanes
        self._recent: deque[float] = deque()  # when those of the last second were answered
        self._queued = 0
        self._blocked_until = 0.0
        self._most = GLOBAL_CALLS
        self._reduced: tuple[int, float] | None = None  # to how many, and when

    def share(self, processes: int) -> None:
        """Take one of so many parts of the calls over all lanes: Discord counts those of all processes together."""
        self._most = max(1, GLOBAL_CALLS // max(1, processes))

    async def turn(self, kind: str, channel: str, *, priority: int = 0, patience_s: float = 0.0) -> Turn | Wait:
        """Wait for a turn of a kind of call in a channel, at most ``patience_s`` seconds; progress does not wait.

        A lower ``priority`` goes first, then whoever asked first. Cancellation gives the place up.
        """
        lane = self._lane(kind, channel)
        deadline = self.now() + (0.0 if priority >= PROGRESS else patience_s)
        wait_s = await self._wait_for_lane(lane, priority, deadline)
        if wait_s is not None:
            return Wait(after_s=wait_s)
        lane.begin()
        try:
            wait_s = await self._wait_for_all(priority, deadline)
        except asyncio.CancelledError:
            lane.give_back()
            raise
        if wait_s is not None:
            lane.give_back()
            return Wait(after_s=wait_s)
        self._running += 1
        return Turn(self, lane)

    def end(self, answered_at: float | None) -> None:
        """Take note of a turn that is over; ``answered_at`` is None for a call that was not made."""
        self._running -= 1
        if answered_at is not None:
            insort(self._recent, answered_at)

    async def _wait_for_lane(self, lane: _Lane, priority: int, deadline: float) -> float | None:
        """Wait for the turn in a lane. None when it has come, else when it may be."""
        ticket = (priority, next(self._tickets))
        insort(lane.waiting, ticket)
        try:
            while True:
                now = self.now()
                wait_s = lane.until_turn(ticket, now)
                if wait_s == 0.0:
                    return None
                if now + (wait_s or 0.0) > deadline or (wait_s is None and now >= deadline):
                    return wait_s or SPAN_S
                await self._look_again(lane, deadline - now if wait_s is None else wait_s)
        finally:
            lane.waiting.remove(ticket)
            lane.wake()

    async def _wait_for_all(self, priority: int, deadline: float) -> float | None:
        """Wait until all lanes together have a turn left. None when they have, else when they may have.

        Everybody waits for its own place in the queue first, so that thousands do not wake to look again.
        """
        wait_s = self._until_free(priority, self._queued)
        self._queued += 1
        try:
            while wait_s > 0:
                if self.now() + wait_s > deadline:
                    return wait_s
                await self._sleep(wait_s)
                wait_s = self._until_free(priority, 0)
        finally:
            self._queued -= 1
        return None

    def _until_free(self, priority: int, ahead: int) -> float:
        """Seconds until a turn is free, as far as it is known, with so many waiting before."""
        now = self.now()
        while self._recent and self._recent[0] + GLOBAL_SPAN_S <= now:
            self._recent.popleft()
        allowed = self._allowed(now)
        most = allowed - (allowed * GLOBAL_LEFT // GLOBAL_CALLS if priority >= PROGRESS else 0)
        missing = ahead + 1 - (most - self._running - len(self._recent))
        wait_s = 0.0
        if 0 < missing <= len(self._recent):
            wait_s = self._recent[missing - 1] + GLOBAL_SPAN_S - now
        elif missing > 0:
            later = (missing - len(self._recent) - 1) // allowed
            wait_s = LOOK_S + later * GLOBAL_SPAN_S
        return max(wait_s, self._blocked_until - now)

    def _allowed(self, now: float) -> int:
        """How many calls may go out in a second, over all lanes."""
        if self._reduced is None:
            return self._most
        most, at = self._reduced
        return min(self._most, most + int((now - at) / RECOVERY_S))

    def block(self, lane: _Lane | None, after_s: float) -> None:
        """Let nothing out for a while: of one lane, or without any of all."""
        now = self.now()
        until = now + after_s + MARGIN_S
        if lane is None:
            if self._reduced is None or now - self._reduced[1] >= GLOBAL_SPAN_S:  # all refusals of a moment are one
                self._reduced = (max(1, self._allowed(now) // 2), now)
            self._blocked_until = max(self._blocked_until, until)
        else:
            lane.blocked_until = max(lane.blocked_until, until)

    async def _look_again(self, lane: _Lane, wait_s: float) -> None:
        """Wait for the time to pass, or for something to change in the lane."""
        changed = asyncio.ensure_future(lane.changed.wait())
        slept = asyncio.ensure_future(self._sleep(wait_s))
        try:
            await asyncio.wait((changed, slept), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            slept.cancel()
            await asyncio.gather(changed, slept, return_exceptions=True)

    def _lane(self, kind: str, channel: str) -> _Lane:
        lane = self._lanes.get((kind, channel))
        if lane is None:
            if len(self._lanes) >= MOST_LANES:
                now = self.now()
                self._lanes = {key: kept for key, kept in self._lanes.items() if not kept.is_idle(now)}
            lane = self._lanes[kind, channel] = _Lane()
        return lane
