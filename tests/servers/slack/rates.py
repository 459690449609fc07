"""How often each method may be called, as Slack publishes it, and a ledger that finds what went above.

Tiers: docs.slack.dev/apis/web-api/rate-limits; each method's own page names its tier. Slack says "per method per
app per workspace", gives the figures as "20+ per minute", and tolerates bursts without saying how long. The ledger
takes the figures as they stand and tolerates a burst in two places only:

- ``apps.connections.open`` (tier 1, one a minute): ten in a minute, as many connections as an app may hold;
- ``chat.postMessage``: one message a second in a channel, with ``POST_BURST`` more within any span of time.

The limit on a whole workspace's messages ("several hundred a minute") and the "special" limits of other methods
are published without a figure, and are not counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

TIERS = {1: 1, 2: 20, 3: 50, 4: 100}
"""Requests a minute."""

METHOD_TIER = {
    "apps.connections.open": 1,
    "conversations.list": 2,
    "users.list": 2,
    "chat.startStream": 2,
    "chat.stopStream": 2,
    "reactions.remove": 2,
    "conversations.history": 3,
    "conversations.replies": 3,
    "conversations.info": 3,
    "conversations.join": 3,
    "conversations.open": 3,
    "chat.update": 3,
    "chat.delete": 3,
    "reactions.add": 3,
    "agents.sessions.setStatus": 3,
    "agents.sessions.rename": 3,
    "auth.revoke": 3,
    "chat.appendStream": 4,
    "chat.postEphemeral": 4,
    "conversations.members": 4,
    "users.info": 4,
    "views.open": 4,
    "views.push": 4,
    "views.update": 4,
    "views.publish": 4,
    "files.info": 4,
    "files.getUploadURLExternal": 4,
    "files.completeUploadExternal": 4,
    "oauth.v2.access": 4,
}
"""The tier of the methods served here; those of ``agents.sessions`` are what other clients assume (UNDOCUMENTED)."""

POST_BURST = 5
"""Messages above one a second that a channel takes within any span of time (UNDOCUMENTED: "short bursts")."""

SOCKET_BURST = 10


@dataclass(frozen=True)
class Use:
    """One call: by the app in a workspace, of a method, for posts in a channel."""

    team: str
    method: str
    channel: str
    at: float


class Ledger:
    """Every call, and which of them went above the published rate. Refused calls count: Slack counts requests."""

    def __init__(self) -> None:
        self.uses: list[Use] = []

    def record(self, method: str, *, team: str, channel: str, at: float) -> None:
        """Note a call at a monotonic time in seconds."""
        self.uses.append(Use(team, method, channel, at))

    def busiest(self, method: str, span_s: float = 60.0) -> int:
        """The most calls of a method in one workspace within any ``span_s`` seconds."""
        return max((_most(times, span_s) for (_, name), times in self._by_method() if name == method), default=0)

    def violations(self) -> list[str]:
        """What went above the published rate, a sentence for each method and workspace, or channel."""
        found = []
        for (team, method), times in self._by_method():
            if (tier := METHOD_TIER.get(method)) is not None:
                allowed = SOCKET_BURST if method == "apps.connections.open" else TIERS[tier]
                if (most := _most(times, 60.0)) > allowed:
                    found.append(f"{method} in {team}: {most} calls within 60 s, published are {allowed}")
        for channel, times in self._posts():
            if (over := _over(times, rate=1.0, burst=POST_BURST)) > 0:
                found.append(f"chat.postMessage to {channel}: {over} posts above one a second and {POST_BURST} more")
        return found

    def _by_method(self) -> Iterator[tuple[tuple[str, str], list[float]]]:
        grouped: dict[tuple[str, str], list[float]] = defaultdict(list)
        for use in self.uses:
            grouped[use.team, use.method].append(use.at)
        for key, times in sorted(grouped.items()):
            yield key, sorted(times)

    def _posts(self) -> Iterator[tuple[str, list[float]]]:
        grouped: dict[str, list[float]] = defaultdict(list)
        for use in self.uses:
            if use.method == "chat.postMessage":
                grouped[use.channel].append(use.at)
        for channel, times in sorted(grouped.items()):
            yield channel, sorted(times)


def _most(times: list[float], span_s: float) -> int:
    """The most of the sorted ``times`` that lie within ``span_s`` of one of them."""
    return max((bisect_right(times, at + span_s - 1e-9) - n for n, at in enumerate(times)), default=0)


def _over(times: list[float], *, rate: float, burst: int) -> int:
    """How many of the sorted ``times`` found an empty bucket of ``burst + 1``, refilled with ``rate`` a second."""
    tokens, last, over = float(burst + 1), times[0], 0
    for at in times:
        tokens = min(burst + 1.0, tokens + (at - last) * rate)
        last = at
        if tokens < 1 - 1e-6:
            over += 1
        else:
            tokens -= 1
    return over
