"""When a call to Slack may go out: one scheduler for everything that a workspace is asked.

Slack counts calls per method and minute (tiers), and posts per channel and second; it answers 429, or ``ok: false``
with ``ratelimited``, to whoever asks more (docs.slack.dev/apis/web-api/rate-limits and the methods' own pages). So
nothing leaves before its turn. A turn is given back ``span_s`` after the call's *answer*: Slack counted the call at
some time before that, so its own window never holds more than ours.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType

PROGRESS = 2
"""The priority of what is worth nothing when it comes late. It never waits, and leaves room for the rest."""

PROGRESS_SHARE = 0.85
"""The part of a method's calls that progress may use up, so that a final call finds a turn."""

CALM_S = 60.0
"""After a refusal there are no bursts for so long: calls of that kind keep their distance."""

MOST_LANES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most ``calls`` within ``span_s`` seconds, for the workspace or for each channel."""

    calls: int
    span_s: float = 60.0
    per_channel: bool = False


_TIER_1, _TIER_2, _TIER_3, _TIER_4 = (Rate(calls=n) for n in (1, 20, 50, 100))

RATES: Mapping[str, Rate | None] = MappingProxyType(
    {
        # one message a second, "short bursts" allowed: three at once, and on average one a second
        "chat.postMessage": Rate(calls=3, span_s=3.0, per_channel=True),
        "chat.update": _TIER_3,
        "chat.delete": _TIER_3,
        "chat.startStream": _TIER_2,
        "chat.stopStream": _TIER_2,
        "agents.sessions.setStatus": _TIER_3,
        "conversations.history": _TIER_3,
        "conversations.replies": _TIER_3,
        "conversations.info": _TIER_3,
        "conversations.open": _TIER_3,
        "conversations.list": _TIER_2,
        "users.list": _TIER_2,
        "reactions.add": _TIER_3,
        "reactions.remove": _TIER_2,
        # tier 1, but a lost connection has to be opened again at once: only Slack's own refusal holds it back
        "apps.connections.open": None,
        "response_url": None,
        "upload": None,
    }
)
"""Methods that are not tier 4; a special tier without published figures counts as tier 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """There is no turn in time; ``after_s`` is when there may be one."""

    after_s: float


@dataclass(slots=True)
class _Lane:
    rate: Rate | None
    running: int = 0
    freed: deque[float] = field(default_factory=deque)  # when the turns of ended calls come back
    blocked_until: float = 0.0
    even_until: float = 0.0  # until then calls keep their distance
    last: float = 0.0
    waiting: list[tuple[int, int]] = field(default_factory=list)

    def until_turn(self, ticket: tuple[int, int], now: float) -> float:
        """Seconds until the turn of ``ticket``, as far as it is known."""
        ahead = sum(1 for other in self.waiting if other < ticket)
        until_free = self._until_free(ahead, now, ticket[0])
        return max(until_free, self._until_even(ahead, now), self.blocked_until - now, 0.0)

    def _until_even(self, ahead: int, now: float) -> float:
        """The distance to the call before, where Slack did not take a burst."""
        if self.rate is None or now >= self.even_until:
            return 0.0
        apart_s = self.rate.span_s / self.rate.calls
        return self.last + apart_s * (1 + ahead) - now

    def _until_free(self, ahead: int, now: float, priority: int) -> float:
        if self.rate is None:
            return 0.0
        self._forget(now)
        calls = self.rate.calls
        if priority >= PROGRESS and calls > 1:
            calls = max(1, int(calls * PROGRESS_SHARE))
        missing = ahead + 1 - (calls - self.running - len(self.freed))
        if missing <= 0:
            return 0.0
        if missing <= len(self.freed):
            return self.freed[missing - 1] - now
        return self.rate.span_s * (1 + (missing - len(self.freed) - 1) // self.rate.calls)

    def room(self, now: float) -> float:
        """The share of turns that are free."""
        if self.rate is None:
            return 1.0
        self._forget(now)
        return 0.0 if self.blocked_until > now else 1.0 - (self.running + len(self.freed)) / self.rate.calls

    def idle(self, now: float) -> bool:
        self._forget(now)
        return not (self.running or self.freed or self.waiting or self.blocked_until > now)

    def _forget(self, now: float) -> None:
        while self.freed and self.freed[0] <= now:
            self.freed.popleft()


class Turn:
    """Leave to make one call; say how it went with exactly one of the three methods."""

    def __init__(self, lane: _Lane, monotonic: Callable[[], float]) -> None:
        self._lane = lane
        self._monotonic = monotonic
        self._open = True
        lane.running += 1
        lane.last = monotonic()

    def answered(self) -> None:
        """The call was made (or may have been)."""
        if self._close() and self._lane.rate is not None:
            self._lane.last = self._monotonic()
            self._lane.freed.append(self._lane.last + self._lane.rate.span_s)

    def refused(self, after_s: float) -> None:
        """Slack asks to wait: nothing of this kind goes out for ``after_s`` seconds."""
        self.answered()
        until = self._monotonic() + after_s
        self._lane.blocked_until = max(self._lane.blocked_until, until)
        self._lane.even_until = max(self._lane.even_until, until + CALM_S)

    def unused(self) -> None:
        """The call was not made."""
        self._close()

    def _close(self) -> bool:
        was_open, self._open = self._open, False
        self._lane.running -= was_open
        return was_open


class Pace:
    """Gives turns. Safe to use concurrently within one event loop.

    Args:
        monotonic, sleep: the clock; ``sleep`` must let that clock go on.
        rates: by method, see ``RATES``.
        other: the rate of every method that is not in ``rates``.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rates: Mapping[str, Rate | None] = RATES,
        other: Rate = _TIER_4,
    ) -> None:
        self._monotonic = monotonic
        self._sleep = sleep
        self._rates = rates
        self._other = other
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._tickets = count()

    async def turn(self, method: str, channel: str = "", *, priority: int = 0, patience_s: float = 0.0) -> Turn | Wait:
        """Wait for a turn of ``method``, at most ``patience_s`` seconds; progress does not wait at all.

        A lower ``priority`` goes first, then whoever asked first. Cancellation gives the place up.
        """
        lane = self._lane(method, channel)
        ticket = (priority, next(self._tickets))
        deadline = self._monotonic() + (0.0 if priority >= PROGRESS else patience_s)
        insort(lane.waiting, ticket)
        try:
            while True:
                now = self._monotonic()
                wait_s = lane.until_turn(ticket, now)
                if wait_s <= 0:
                    return Turn(lane, self._monotonic)
                if now + wait_s > deadline:
                    return Wait(after_s=wait_s)
                await self._sleep(wait_s)
        finally:
            lane.waiting.remove(ticket)

    def interval(self, method: str, *, writers: int, quick_s: float, slow_s: float) -> float:
        """Say how often each of ``writers`` may call ``method`` for progress.

        A lone writer gets ``quick_s``. Many share what the method's rate sustains; as long as turns are left over
        nobody waits longer than ``slow_s``, so that a short answer is shown in time.
        """
        lane = self._lane(method, "")
        if lane.rate is None:
            return quick_s
        sustained_s = max(quick_s, writers * lane.rate.span_s / (lane.rate.calls * PROGRESS_SHARE))
        spare = lane.room(self._monotonic()) - (1.0 - PROGRESS_SHARE)
        return min(sustained_s, max(quick_s, slow_s)) if spare * lane.rate.calls >= 1 else sustained_s

    def room(self, method: str, channel: str = "") -> float:
        """Return the share of the turns of ``method`` that are free now."""
        return self._lane(method, channel).room(self._monotonic())

    def _lane(self, method: str, channel: str) -> _Lane:
        rate = self._rates.get(method, self._other)
        key = (method, channel if rate is not None and rate.per_channel else "")
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= MOST_LANES:
                now = self._monotonic()
                self._lanes = {k: kept for k, kept in self._lanes.items() if not kept.idle(now)}
            lane = self._lanes[key] = _Lane(rate)
        return lane
