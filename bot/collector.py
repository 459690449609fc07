"""The collector: takes a reading of every database's statement counters at an interval, so that questions find a past.

One task a server, never overlapping itself. Of several processes on one store only the holder of a target's lease
collects; the lease of a process that died is taken over at once on the same machine, else when it is over. A target
that fails is named once, tried again at growing intervals, and named once more when it works again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.http import Metric
from bot.owners import is_dead_owner
from bot.storage.base import StoreError
from bot.storage.snapshots import HistoryStore
from bot.tools.query_history.recorders import RECORDERS
from bot.tools.targets import Target, Targets

log = structlog.get_logger("hermod.collector")

READING_S = 30.0
"""The longest that one reading may take; at most half the interval where that is shorter, but at least 5 s."""

STOP_S = 1.0
"""How long ``stop`` waits for readings that are under way."""

LONGEST_PAUSE_S = 1800.0
"""Between attempts on a target that keeps failing."""

FIRST_SWEEP_S = 60.0
"""Within which old readings are first looked for."""

SWEEP_S = 3600.0
"""Between looks for readings that are too old."""

_LEASE_INTERVALS = 2.5


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What became of one target's readings in this process. ``failing``: the code of the state it is in, or empty."""

    readings: int = 0
    failures: int = 0
    newest: datetime | None = None
    failing: str = ""
    in_a_row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Targets that are seen in one reading: the same server and role, and counters that are the server's."""

    members: tuple[Target, ...]
    tally: _Tally = field(default_factory=_Tally)

    @property
    def name(self) -> str:
        """How the log calls it."""
        return self.members[0].name

    @property
    def lease(self) -> str:
        """The name of the lease."""
        return f"collector/{self.name}"


class Collector:
    """Takes readings in the background. Start it once.

    Args:
        targets: all configured ones; those without statement counters are passed over.
        store: where readings go.
        clock: time, also that of the pauses.
        owner: names this process in leases (``bot.owners.name_owner``).
        enabled: take readings; if not, old ones are dropped all the same.
        interval_s: between the beginnings of two readings.
        keep_s: how old stored readings become.
        jitter: a number from 0 to 1 for each target's first pause, so that they do not all begin together.
    """

    def __init__(
        self,
        *,
        targets: Targets,
        store: HistoryStore,
        clock: Clock,
        owner: str,
        enabled: bool = True,
        interval_s: float = 60.0,
        keep_s: float = 32 * 86_400.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._interval_s = interval_s
        self._keep_s = keep_s
        self._jitter = jitter
        self._groups = _group_targets(targets.values()) if enabled else ()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> None:
        """Begin; returns at once."""
        self._tasks = (
            *(asyncio.create_task(self._keep_collecting(g), name=f"collector of {g.name}") for g in self._groups),
            asyncio.create_task(self._keep_sweeping(), name="collector's sweep"),
        )
        for task in self._tasks:
            task.add_done_callback(_tell_defect)
        if self._groups:
            names = sorted(one.name for group in self._groups for one in group.members)
            log.info("collector_started", targets=names, interval_s=self._interval_s)

    async def stop(self) -> None:
        """End within ``STOP_S``, and give the leases back."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.wait(tasks)
                for group in self._groups:
                    await self._store.end_lease(group.lease, self._owner)
        except TimeoutError:
            log.warning("collector_stopped_late", waiting=[task.get_name() for task in tasks if not task.done()])
        except StoreError as error:
            log.warning("collector_lease_not_ended", reason=str(error))

    def metrics(self) -> Iterator[Metric]:
        """Counters of this process, and the age of each target's newest reading."""
        tallies = [(one.name, group.tally) for group in self._groups for one in group.members]
        for name, tally in tallies:
            yield Metric(
                name="hermod_collector_readings_total",
                help="Readings of statement counters that this process stored.",
                kind="counter",
                value=tally.readings,
                labels={"target": name},
            )
        for name, tally in tallies:
            yield Metric(
                name="hermod_collector_failures_total",
                help="Readings of statement counters that failed.",
                kind="counter",
                value=tally.failures,
                labels={"target": name},
            )
        for name, tally in tallies:
            if tally.newest is not None:
                yield Metric(
                    name="hermod_collector_newest_reading_age_seconds",
                    help="Age of the newest reading that this process stored.",
                    value=max(0.0, (self._clock.now() - tally.newest).total_seconds()),
                    labels={"target": name},
                )

    # -- collecting ----------------------------------------------------------------------------------

    async def _keep_collecting(self, group: _Group) -> None:
        await self._clock.sleep(self._jitter() * self._interval_s)
        while True:
            began = self._clock.monotonic()
            await self._collect_once(group)
            pause_s = find_pause(self._interval_s, group.tally.in_a_row)
            # From the beginning of the reading, so that its length does not move the next one.
            await self._clock.sleep(max(0.0, pause_s - (self._clock.monotonic() - began)))

    async def _collect_once(self, group: _Group) -> None:
        tally = group.tally
        try:
            async with asyncio.timeout(self._reading_s):
                if await self._holds_lease(group):
                    tally.newest = await self._read(group)
                    tally.readings += 1
                    self._tell_recovery(group)
        except ToolFailed as failure:
            self._tell_failure(group, failure.code, failure.message, failure.fix or "")
        except TimeoutError:
            said = f"a reading took longer than {self._reading_s:g} s and was given up"
            self._tell_failure(group, "timeout", said, "look how busy the server is, and at the network to it")
        except StoreError as error:
            self._tell_failure(group, "storage", str(error), "look at the storage ([storage] url)")

    async def _read(self, group: _Group) -> datetime:
        """Read through the first target that can be read; the extension may be in one database and not in another."""
        failures: list[ToolFailed] = []
        for n, target in enumerate(group.members):
            also = [one.name for one in (*group.members[:n], *group.members[n + 1 :])]
            try:
                read = await RECORDERS[target.engine](target, self._store, self._clock, also=also)
            except ToolFailed as failure:
                failures.append(failure)
            else:
                return read.counters.taken_at
        raise failures[0]

    @property
    def _reading_s(self) -> float:
        return max(5.0, min(READING_S, self._interval_s / 2))

    async def _holds_lease(self, group: _Group) -> bool:
        lease_s = self._interval_s * _LEASE_INTERVALS + self._reading_s
        for _ in range(2):
            now = self._clock.now()
            holder = await self._store.hold_lease(group.lease, self._owner, lease_s=lease_s, now=now)
            if holder == self._owner or not is_dead_owner(holder):
                return holder == self._owner
            log.info("collector_taken_over", target=group.name, owner=holder)
            await self._store.end_lease(group.lease, holder)
        return False

    def _tell_failure(self, group: _Group, code: str, said: str, fix: str) -> None:
        tally = group.tally
        tally.failures += 1
        tally.in_a_row += 1
        if tally.failing != code:
            tally.failing = code
            log.warning("collector_failed", target=group.name, code=code, error=said, what_to_do=fix)

    def _tell_recovery(self, group: _Group) -> None:
        tally = group.tally
        if tally.failing:
            log.info("collector_recovered", target=group.name, after=tally.failing, failures=tally.in_a_row)
        tally.failing, tally.in_a_row = "", 0

    # -- retention -----------------------------------------------------------------------------------

    async def _keep_sweeping(self) -> None:
        await self._clock.sleep(self._jitter() * FIRST_SWEEP_S)  # a start has more urgent things to write
        while True:
            try:
                gone = 0
                # A part at a time, with a pause, so that messages need not wait behind a month of readings.
                while some := await self._store.drop_snapshots(
                    before=self._clock.now() - timedelta(seconds=self._keep_s)
                ):
                    gone += some
                    await self._clock.sleep(0.05)
                if gone:
                    log.info("snapshots_dropped", readings=gone)
            except StoreError as error:
                log.warning("snapshots_not_dropped", reason=str(error))
            await self._clock.sleep(SWEEP_S)


def find_pause(interval_s: float, failures: int) -> float:
    """Return how long to wait from the beginning of a reading to the next, after so many failures in a row."""
    # bounded: after a month of failures the power is larger than any float
    factor: int = 2 ** min(failures, 16)
    return min(interval_s * factor, max(LONGEST_PAUSE_S, interval_s))


def _group_targets(targets: Iterable[Target]) -> tuple[_Group, ...]:
    """Put targets together that differ in nothing but their database and name.

    The counters are the server's, whatever database one is connected to: reading them once for each target would load
    the server once for each. Another role may see less, and another address may be a replica, so those are kept apart.
    """
    groups: dict[tuple[object, ...], list[Target]] = {}
    for target in sorted(targets, key=lambda one: one.name):
        if target.engine in RECORDERS:
            options = tuple(sorted(target.options.items()))
            place = (target.engine, target.host, target.port, target.user, target.sslmode, options)
            groups.setdefault(place, []).append(target)
    return tuple(_Group(members=tuple(members)) for members in groups.values())


def _tell_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("collector_ended", task=task.get_name(), error=repr(error), exc_info=error)
