"""Names and standing of people, from users.info through a cache that never holds up an acknowledgement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from adapters.slack.parse import Person

FetchPerson = Callable[[str], Awaitable[Person | None]]
"""Asks the platform for a person; None when it does not tell. Raises nothing but cancellation."""


@dataclass(frozen=True, slots=True)
class _Entry:
    person: Person | None
    until: float


class Directory:
    """Knows people for a while.

    Args:
        fetch: see ``FetchPerson``; must be bounded in time.
        monotonic: the clock of the entries' age.
        ttl_s: how long a person is taken as known.
        failed_ttl_s: how long nobody is asked again after a failure.
        wait_s: the longest time that ``find`` waits; look-ups go on behind it.
        most: people kept and people asked for at once are bounded (the oldest are forgotten).
    """

    def __init__(
        self,
        fetch: FetchPerson,
        *,
        monotonic: Callable[[], float],
        ttl_s: float = 3600.0,
        failed_ttl_s: float = 60.0,
        wait_s: float = 1.0,
        most: int = 20_000,
    ) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._ttl_s = ttl_s
        self._failed_ttl_s = failed_ttl_s
        self._wait_s = wait_s
        self._most = most
        self._known: dict[str, _Entry] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def find(self, ids: Iterable[str]) -> dict[str, Person]:
        """Return whom we know of ``ids``, after at most ``wait_s`` seconds.

        An outdated entry is better than none: it is used when asking again fails or takes too long.
        At most 20 people are asked for; the others are returned only if they are known.
        """
        wanted = list(dict.fromkeys(ids))
        asking = [task for user in wanted[:20] if (task := self._ask(user)) is not None]
        if asking:
            await asyncio.wait(asking, timeout=self._wait_s)
        return {
            user: entry.person
            for user in wanted
            if (entry := self._known.get(user)) is not None and entry.person is not None
        }

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ask(self, user: str) -> asyncio.Task[None] | None:
        entry = self._known.get(user)
        if entry is not None and self._monotonic() < entry.until:
            return None
        task = self._asking.get(user)
        if task is None:
            task = self._asking[user] = asyncio.create_task(self._load(user), name=f"slack-user-{user}")
            task.add_done_callback(lambda _: self._asking.pop(user, None))
        return task

    async def _load(self, user: str) -> None:
        person = await self._fetch(user)
        before = self._known.pop(user, None)
        ttl_s = self._ttl_s if person is not None else self._failed_ttl_s
        if person is None and before is not None:
            person = before.person
        self._known[user] = _Entry(person, self._monotonic() + ttl_s)
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
