"""What the clock of the jobs costs: ``python -m benchmarks.jobs [--jobs N] [--rounds N] [--postgres [URL]]``.

One database has ten jobs, the other ten thousand; ten of each are due in every round, the others wait. They take turns,
and so do the two verbs of the store alone (``list_due_jobs``, then ``fire_job`` for each) and a whole look of the
scheduler, which computes the times, too. Between rounds what fired is carried out, so that no time is skipped. What
counts is the minimum of all rounds; beside it stand ten ``ping`` of the same store, the least that it can be asked. A
look in vain is counted in CPU of this process, over the scheduler's interval.

``--postgres`` measures that as well: on the server of the address, in two databases that are made for it and dropped,
or on a server of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import structlog
from psycopg import sql

from adapters.chat import Author
from agent_core.context import SystemClock
from benchmarks.table import Row, render_ratio, render_table
from bot.demo.postgres import EmbeddedPostgres
from bot.jobs.calendar import Occurrence
from bot.jobs.job import JobSpec, build_firing, dump_spec
from bot.jobs.keeping import JobKeeper, build_new_firing
from bot.jobs.scheduler import INTERVAL_S, JobScheduler
from bot.storage import open_store
from bot.storage.base import RunOutcome, RunRow, Store
from bot.storage.jobs import JobRow, JobState, NewFiring

FEW, DUE = 10, 10
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
JOB_BOUND_MS = 5.0
IDLE_BOUND = 0.01
LOOKS = 200

_PLACE = "slack:T1/C1"
_SPEC = JobSpec(cron="* * * * *", zone="Europe/Berlin", task="what is slow, and what became slower since yesterday?")


@dataclass(slots=True)
class TurnedClock(SystemClock):
    """Shows the time that it was turned to."""

    shown: datetime = BEGIN

    def now(self) -> datetime:
        """The time that it was turned to."""
        return self.shown


@dataclass(slots=True, kw_only=True)
class Stage:
    """A store with jobs, the clock and the scheduler that look at it, and what was measured of them in milliseconds."""

    store: Store
    clock: TurnedClock
    scheduler: JobScheduler
    verbs_ms: list[float] = field(default_factory=list)
    ticks_ms: list[float] = field(default_factory=list)
    pings_ms: list[float] = field(default_factory=list)
    look_ms: float = 0.0


# -- the stage ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _set_up(url: str, jobs: int) -> AsyncIterator[Stage]:
    """Make jobs, ten of which are due each minute while the others wait for next year."""
    store, clock = open_store(url), TurnedClock()
    await store.open()
    try:
        for n in range(jobs):
            due = n < DUE
            await store.save_job(_build_job(n, BEGIN if due else BEGIN + timedelta(days=365, seconds=n)), expected=None)
        keeper = JobKeeper(store, clock, adapters={}, targets=(), workers=(), templates=(), wake=_stay_quiet)
        yield Stage(store=store, clock=clock, scheduler=JobScheduler(store, clock, keeper=keeper, wake=_stay_quiet))
    finally:
        await store.close()


def _build_job(n: int, next_at: datetime) -> JobRow:
    return JobRow(
        job_id=f"{n:032x}",
        name=f"report-{n}",
        origin="chat",
        place=_PLACE,
        owner="slack:U1",
        owner_name="Ann",
        spec=dump_spec(_SPEC if n < DUE else replace(_SPEC, cron="0 9 1 1 *")),
        state=JobState.ACTIVE,
        reason="",
        next_at=next_at,
        thread_key=f"{_PLACE}/1700.1",
        created_at=BEGIN,
        updated_at=BEGIN,
    )


def _stay_quiet() -> None:
    """Nobody waits for work here."""


def _build_firing(n: int, at: datetime) -> NewFiring:
    job = _build_job(n, at)
    firing = build_firing(
        job.place,
        author=Author(id="U1", name="Ann"),
        job_id=job.job_id,
        job=job.name,
        spec=_SPEC,
        occurrence=Occurrence(at=at, key=f"{at:%Y-%m-%dT%H:%MZ}", local=f"{at:%Y-%m-%d %H:%M}"),
    )
    return build_new_firing(firing, at)


# -- measuring ---------------------------------------------------------------------------------------


async def _run_verbs(stage: Stage) -> None:
    """Fire what is due by the store's verbs."""
    now = stage.clock.now()
    firings = {f"{n:032x}": _build_firing(n, now) for n in range(DUE)}
    began = time.perf_counter()
    for job in await stage.store.list_due_jobs(now=now):
        fired = await stage.store.fire_job(
            job, [firings[job.job_id]], next_at=now + MINUTE, now=now, overlap=_SPEC.overlap
        )
        if fired != ("fired",):
            raise RuntimeError(f"a time did not fire: {fired}")
    stage.verbs_ms.append((time.perf_counter() - began) * 1000 / DUE)


async def _run_tick(stage: Stage) -> None:
    """Fire what is due by a look of the scheduler."""
    began = time.perf_counter()
    await stage.scheduler.tick()
    stage.ticks_ms.append((time.perf_counter() - began) * 1000 / DUE)


async def _run_pings(stage: Stage) -> None:
    """Ask the store for nothing, as often as it has something due."""
    began = time.perf_counter()
    for _ in range(DUE):
        await stage.store.ping()
    stage.pings_ms.append((time.perf_counter() - began) * 1000 / DUE)


async def _carry_out(stage: Stage) -> None:
    """End what fired; each of the ten jobs must have."""
    now, done = stage.clock.now(), 0
    while (claim := await stage.store.claim_thread("b", prefixes=("",), lease_s=30.0, now=now)) is not None:
        run = RunRow(
            run_id=f"{claim.thread_key}#", thread_key=claim.thread_key, agent="a", state="init", started_at=now
        )
        await stage.store.begin_run(claim, run, [item.id for item in claim.items])
        ended = RunOutcome(state="finished", error="", record="", ended_at=now)
        await stage.store.finish_run(claim, run.run_id, ended)
        await stage.store.release_claim(claim)
        done += 1
    if done != DUE:
        raise RuntimeError(f"{done} times fired instead of {DUE}")


async def _look_in_vain(stage: Stage) -> None:
    """Look many times when nothing is due."""
    began = time.process_time()
    for _ in range(LOOKS):
        await stage.scheduler.tick()
    stage.look_ms = (time.process_time() - began) * 1000 / LOOKS


async def _measure(who: str, few_url: str, many_url: str, *, jobs: int, rounds: int) -> list[Row]:
    async with AsyncExitStack() as stack:
        few = await stack.enter_async_context(_set_up(few_url, FEW))
        many = await stack.enter_async_context(_set_up(many_url, jobs))
        for round_ in range(2 * rounds):
            for stage in (few, many) if round_ // 2 % 2 == 0 else (many, few):
                await (_run_tick(stage) if round_ % 2 else _run_verbs(stage))
                await _carry_out(stage)
                await _run_pings(stage)
                stage.clock.shown += MINUTE
        for stage in (few, many):
            stage.clock.shown -= MINUTE  # all of it was decided about
            await _look_in_vain(stage)
    return _build_rows(who, jobs, few, many)


def _build_rows(who: str, jobs: int, few: Stage, many: Stage) -> list[Row]:
    rows = []
    for what, few_ms, many_ms in (
        ("list_due_jobs + fire_job, a due job", few.verbs_ms, many.verbs_ms),
        ("a look of the scheduler, a due job", few.ticks_ms, many.ticks_ms),
    ):
        ratios = [m / f for m, f in zip(many_ms, few_ms, strict=True)]
        rows += [
            Row(cell=what, who=f"{who}, {FEW} jobs", value=_render_ms(few_ms)),
            Row(
                cell=what,
                who=f"{who}, {jobs:,} jobs",
                value=_render_ms(many_ms),
                ratio=render_ratio(ratios),
                bound=f"{JOB_BOUND_MS:g} ms at best",
                holds=min(many_ms) <= JOB_BOUND_MS,
            ),
        ]
    rows.append(Row(cell="a ping", who=f"{who}, {jobs:,} jobs", value=_render_ms(many.pings_ms)))
    share = many.look_ms / 1000 / INTERVAL_S
    rows.append(
        Row(
            cell=f"a look in vain every {INTERVAL_S:g} s",
            who=f"{who}, {jobs:,} jobs",
            value=f"{many.look_ms:.2f} ms of CPU, {share:.3%}",
            ratio=f"{many.look_ms / few.look_ms:.2f}",
            bound=f"{IDLE_BOUND:.0%} of a CPU",
            holds=share < IDLE_BOUND,
        )
    )
    return rows


def _render_ms(values: list[float]) -> str:
    return f"{min(values):.2f} ms at best, {statistics.median(values):.2f} median"


# -- where -------------------------------------------------------------------------------------------


@contextmanager
def _make_databases(url: str) -> Iterator[tuple[str, str]]:
    """Two fresh databases on a server, dropped afterwards."""
    names = [f"hermod_bench_{time.time_ns()}_{what}" for what in ("few", "many")]
    with psycopg.connect(url, autocommit=True) as admin:
        for name in names:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield _name_database(url, names[0]), _name_database(url, names[1])
        finally:
            for name in names:
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _name_database(url: str, name: str) -> str:
    """Return the address with another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _measure_sqlite(jobs: int, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="hermod-bench-") as folder:
        few, many = (f"sqlite:///{Path(folder) / name}.db" for name in ("few", "many"))
        return asyncio.run(_measure("SQLite", few, many, jobs=jobs, rounds=rounds))


def _measure_postgres(url: str, jobs: int, rounds: int) -> list[Row]:
    """On the server of an address, or, when it is empty, on one that is started for it."""
    server = None if url else EmbeddedPostgres()
    if server is not None:
        asyncio.run(server.start())
    try:
        with _make_databases(url if server is None else server.url()) as urls:
            return asyncio.run(_measure("Postgres", *urls, jobs=jobs, rounds=rounds))
    finally:
        if server is not None:
            asyncio.run(server.stop())


def main() -> int:
    """Measure, print the table, and say whether every bound holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000, help="in the large table (default 10000)")
    parser.add_argument("--rounds", type=int, default=40, help="of each kind (default 40)")
    parser.add_argument("--postgres", metavar="URL", nargs="?", const="", help="a server's; none: one of its own")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows = _measure_sqlite(args.jobs, args.rounds)
    if args.postgres is not None:
        rows += _measure_postgres(args.postgres, args.jobs, args.rounds)
    print(render_table(rows))
    missed = [row for row in rows if not row.holds]
    print("every bound holds" if not missed else f"{len(missed)} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
