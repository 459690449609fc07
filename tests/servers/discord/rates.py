"""How often the bot may call, how it is told, and a ledger of what went above.

docs.discord.com/developers/topics/rate-limits. Buckets are announced in headers and refused with 429 when spent;
the figures themselves are not published ("rate limits should not be hard coded"). With ``strict`` the buckets have the
sizes that clients report, UNDOCUMENTED: five messages in five seconds in a channel, edits counted with them (both
answer with the same X-RateLimit-Bucket: github.com/discord/discord-api-docs/issues/1442), one reaction in a quarter of
a second, five follow-ups in two seconds, three edits of messages older than an hour in 20 seconds; and the published
50 requests a second over all. Without it every route has one wide bucket, so that tests are not slowed down.

The ledger blames the client for what it could know: a request on a bucket that it had been told is empty, a 51st
request within a second, and many invalid requests (401, 403, 429) within ten minutes, long before the published 10,000.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, deque
from dataclasses import dataclass, field

from tests.servers.clock import Clock
from tests.servers.discord.model import ApiError, limited

GLOBAL_LIMIT = 50
INVALID_LIMIT, INVALID_SPAN_S = 10_000, 600.0

#: (method, route) -> name of a bucket that several routes share
SHARED = {
    ("POST", "/channels/{c}/messages"): "messages",
    ("PATCH", "/channels/{c}/messages/{m}"): "messages",
    ("PUT", "/channels/{c}/messages/{m}/reactions/{e}/@me"): "reactions",
    ("DELETE", "/channels/{c}/messages/{m}/reactions/{e}/@me"): "reactions",
    ("POST", "/webhooks/{a}/{t}"): "followups",
    ("PATCH", "/webhooks/{a}/{t}/messages/{m}"): "followups",
    ("DELETE", "/webhooks/{a}/{t}/messages/{m}"): "followups",
}
STRICT = {"messages": (5, 5.0), "reactions": (1, 0.25), "followups": (5, 2.0)}
OLD_EDITS = (3, 20.0)


@dataclass
class Bucket:
    """A window that opens with its first request."""

    limit: int
    span_s: float
    opened: float
    used: int = 0
    told_empty: bool = False

    def reset_after(self, now: float) -> float:
        return max(0.0, self.opened + self.span_s - now)


@dataclass(frozen=True)
class Use:
    """One request: where it went and when (monotonic seconds)."""

    call: str  # 'METHOD /path'
    place: str  # channel, guild or token
    at: float


@dataclass
class Rates:
    """Buckets, the count of invalid requests, and the ledger."""

    clock: Clock
    wide: tuple[int, float] = (50, 1.0)
    strict: bool = False
    invalid_alarm: int = 200
    uses: list[Use] = field(default_factory=list)
    invalid: deque[float] = field(default_factory=deque)
    _buckets: dict[tuple[str, str], Bucket] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=deque)
    _blamed: Counter[str] = field(default_factory=Counter)

    def spend(self, method: str, route: str, path: str, place: str, *, exempt: bool) -> dict[str, str]:
        """Count a request and return its headers; raise the 429 that it gets.

        Args:
            method: HTTP method.
            route: the route's pattern, part of the bucket's name.
            path: the path itself, for the ledger.
            place: the top-level resource: channel, guild, or webhook token.
            exempt: an interaction's endpoint, which the global limit leaves out.
        """
        now = self.clock.now()
        self.uses.append(Use(f"{method} {path}", place, now))
        name = SHARED.get((method, route), f"{method} {route}")
        self._count_global(now, exempt=exempt)
        limit, span_s = STRICT.get(name, self.wide) if self.strict else self.wide
        bucket = self._buckets.get((name, place))
        if bucket is None or bucket.reset_after(now) <= 0:
            bucket = self._buckets[name, place] = Bucket(limit, span_s, now)
        if bucket.used >= bucket.limit:
            if bucket.told_empty:
                self._blamed[f"{name} of {place}: called although the headers said that nothing remains"] += 1
            error = limited(bucket.reset_after(now))
            error.headers |= self._headers(name, bucket, now)
            bucket.told_empty = True
            raise error
        bucket.used += 1
        return self._headers(name, bucket, now)

    def told(self, method: str, route: str, place: str) -> None:
        """The answer with the headers has left: from now on the client knows."""
        bucket = self._buckets.get((SHARED.get((method, route), f"{method} {route}"), place))
        if bucket is not None and bucket.used >= bucket.limit:
            bucket.told_empty = True

    def spend_old_edit(self, channel: str) -> None:
        """Count an edit of a message older than an hour; raises 429 with code 30046."""
        now = self.clock.now()
        bucket = self._buckets.get(("old edits", channel))
        if bucket is None or bucket.reset_after(now) <= 0:
            bucket = self._buckets["old edits", channel] = Bucket(*OLD_EDITS, opened=now)
        if self.strict and bucket.used >= bucket.limit:
            raise limited(bucket.reset_after(now), code=30046)
        bucket.used += 1

    def note_answer(self, status: int, scope: str) -> None:
        """Count an invalid request; those of shared resources are not counted."""
        if status not in (401, 403, 429) or scope == "shared":
            return
        now = self.clock.now()
        self.invalid.append(now)
        while now - self.invalid[0] >= INVALID_SPAN_S:
            self.invalid.popleft()
        if len(self.invalid) > self.invalid_alarm:
            self._blamed[f"more than {self.invalid_alarm} invalid requests (401, 403, 429) within ten minutes"] += 1

    def check_ban(self) -> None:
        """Refuse everything above 10,000 invalid requests in ten minutes, as Cloudflare does: 403 without JSON."""
        if len(self.invalid) >= INVALID_LIMIT and self.clock.now() - self.invalid[-INVALID_LIMIT] < INVALID_SPAN_S:
            raise ApiError(403, -1, "error code: 1015")

    def violations(self) -> list[str]:
        """A sentence for each kind of excess, with how often it happened."""
        return [f"{sentence} ({times} times)" for sentence, times in sorted(self._blamed.items())]

    def busiest(self, pattern: str, span_s: float = 1.0, *, per_place: bool = False) -> int:
        """The most calls matching 'METHOD /path' within any ``span_s`` seconds, over all or in one place."""
        times: dict[str, list[float]] = {}
        for use in self.uses:
            if re.search(pattern, use.call):
                times.setdefault(use.place if per_place else "", []).append(use.at)
        return max((_most(each, span_s) for each in times.values()), default=0)

    def _count_global(self, now: float, *, exempt: bool) -> None:
        if exempt:
            return
        while self._recent and now - self._recent[0] >= 1.0:
            self._recent.popleft()
        if self.strict and len(self._recent) >= GLOBAL_LIMIT:
            self._blamed[f"more than {GLOBAL_LIMIT} requests within a second"] += 1
            raise limited(1.0 - (now - self._recent[0]), scope="global")
        self._recent.append(now)

    def _headers(self, name: str, bucket: Bucket, now: float) -> dict[str, str]:
        reset = bucket.reset_after(now)
        return {
            "X-RateLimit-Limit": str(bucket.limit),
            "X-RateLimit-Remaining": str(bucket.limit - bucket.used),
            "X-RateLimit-Reset": f"{self.clock.wall() + reset:.3f}",
            "X-RateLimit-Reset-After": f"{reset:.3f}",
            "X-RateLimit-Bucket": f"{zlib.crc32(name.encode()):08x}",
        }


def _most(times: list[float], span_s: float) -> int:
    most, first = 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= span_s:
            first += 1
        most = max(most, last - first + 1)
    return most
