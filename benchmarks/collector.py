"""What the collector costs a Postgres server: ``python -m benchmarks.collector [--rounds N] [--seconds S]``.

A server of its own is filled with 5,000 statement shapes. Then:

* one reading of the numbers is timed by the server itself (its own pg_stat_statements), beside one with all texts;
* pgbench runs in turns without and with a collector, a process of its own as in ``hermod run``. At its usual interval
  of a minute its effect would drown in the noise of any machine, so it reads *every second*, sixty times as often; what
  is lost at the usual interval is a sixtieth of what the pairs show.

pgbench takes all there is: on two cores, server, pgbench and collector compete, which is worse than on a real server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from agent_core.context import SystemClock
from benchmarks.table import Row, render_table
from bot.collector import Collector
from bot.demo.postgres import EmbeddedPostgres, find_binaries
from bot.owners import name_owner
from bot.storage.sqlite import SqliteStore
from bot.tools.query_history.reading import record_postgres
from bot.tools.targets import Target, Targets

SHAPES = 5_000
READING_BOUND_MS = 50.0
LOSS_BOUND = 0.01
INTERVAL_S, USUAL_INTERVAL_S = 1.0, 60.0
READINGS = 15
CLIENTS = 4

_SIGNS = "+-*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Transactions a second of each run, in pairs."""

    without: tuple[float, ...]
    beside: tuple[float, ...]

    @property
    def losses(self) -> list[float]:
        """The share of throughput that is lost, pair by pair."""
        return [1 - beside / without for without, beside in zip(self.without, self.beside, strict=True)]


def measure(*, rounds: int, seconds: int) -> list[Row]:
    """Measure, and return the table's rows. Takes about ``2 * rounds * seconds`` and half a minute."""
    server = EmbeddedPostgres(settings={"pg_stat_statements.max": "10000"})
    asyncio.run(server.start())
    try:
        _fill(server)
        with tempfile.TemporaryDirectory(prefix="hermod-bench-") as folder:
            store = Path(folder) / "hermod.db"
            rows = asyncio.run(_time_readings(server, store))
            print(render_table(rows), file=sys.stderr, flush=True)
            return rows + _run_pairs(server, store, rounds, seconds)
    finally:
        asyncio.run(server.stop())


def _fill(server: EmbeddedPostgres) -> None:
    """Run statements of as many shapes; each is told apart by its operators and the width of its list."""
    with psycopg.connect(server.url("postgres"), autocommit=True, prepare_threshold=None) as admin:
        admin.execute("create extension if not exists pg_stat_statements")
        for n in range(SHAPES):
            width, rest = n % 50 + 1, n // 50
            signs = [_SIGNS[rest // 3**place % 3] for place in range(5)]
            term = "1" + "".join(f" {sign} {place + 1}" for place, sign in enumerate(signs))
            admin.execute(f"select {', '.join([term] + ['now() as a_column_with_a_name'] * width)}".encode())
        (known,) = admin.execute("select count(*) from pg_stat_statements").fetchone() or (0,)
    if known < SHAPES:
        raise RuntimeError(f"the server knows {known} shapes instead of {SHAPES}")


async def _time_readings(server: EmbeddedPostgres, path: Path) -> list[Row]:
    """Take readings, and ask the server how long it worked for each kind."""
    target = Target.from_url("bench", server.url("postgres"), accept_risks=["superuser"])
    walls: list[float] = []
    store = SqliteStore(path)
    await store.open()
    try:
        while not walls or await store.list_unknown(target.name, limit=50):  # until all texts are known
            await record_postgres(target, store, SystemClock())
            walls = [0.0]
        walls = []
        for _ in range(READINGS):
            began = time.perf_counter()
            await record_postgres(target, store, SystemClock())
            walls.append((time.perf_counter() - began) * 1000)
    finally:
        await store.close()
    size_kib = (await asyncio.to_thread(path.stat)).st_size / 1024
    numbers_ms, best_ms, texts_ms = await _ask_server(server)
    return [
        Row(
            cell=f"a reading at {SHAPES:,} shapes",
            who="server, numbers only",
            value=f"{best_ms:.1f} ms at best, {numbers_ms:.1f} in the mean",
            bound=f"{READING_BOUND_MS:g} ms at best",
            holds=best_ms < READING_BOUND_MS,
        ),
        Row(
            cell=f"a reading at {SHAPES:,} shapes",
            who="server, with all texts",
            value=f"{texts_ms:.1f} ms",
            ratio=f"{texts_ms / numbers_ms:.1f}",
        ),
        Row(
            cell=f"a reading at {SHAPES:,} shapes",
            who="whole, stored",
            value=f"{statistics.median(walls):.0f} ms; {size_kib:,.0f} KiB with texts",
        ),
    ]


async def _ask_server(server: EmbeddedPostgres) -> tuple[float, float, float]:
    """Mean and best time of reading numbers, and the mean of reading texts, in milliseconds on the server."""
    async with await psycopg.AsyncConnection.connect(server.url("postgres"), autocommit=True) as admin:
        for _ in range(5):
            await admin.execute("select count(length(query)) as all_texts from pg_stat_statements(true)")
        cursor = await admin.execute(
            "select sum(total_exec_time) filter (where query like '%stddev_exec_time%' and query like '%hermod%')"
            " / sum(calls) filter (where query like '%stddev_exec_time%' and query like '%hermod%'),"
            " min(min_exec_time) filter (where query like '%stddev_exec_time%' and query like '%hermod%'),"
            " max(mean_exec_time) filter (where query like '%all_texts%') from pg_stat_statements where calls >= 5"
        )
        row = await cursor.fetchone()
    if row is None or row[0] is None or row[2] is None:
        raise RuntimeError("the server does not know our own statements")
    return float(row[0]), float(row[1]), float(row[2])


# -- throughput --------------------------------------------------------------------------------------


def _run_pairs(server: EmbeddedPostgres, store: Path, rounds: int, seconds: int) -> list[Row]:
    _pgbench(server, "-i", "-s", "4", "-q")
    _pgbench(server, "-T", "3", "-c", str(CLIENTS))
    without: list[float] = []
    beside: list[float] = []
    for round_ in range(rounds):
        for collects in (False, True) if round_ % 2 == 0 else (True, False):
            if collects:
                with _collecting(server, store):
                    beside.append(_run_once(server, seconds))
            else:
                without.append(_run_once(server, seconds))
        print(f"{without[-1]:,.0f} tps alone, {beside[-1]:,.0f} beside", file=sys.stderr, flush=True)
    found = Throughput(without=tuple(without), beside=tuple(beside))
    loss = statistics.median(found.losses)
    scaled = loss * INTERVAL_S / USUAL_INTERVAL_S
    return [
        Row(
            cell=f"pgbench, {CLIENTS} clients, {seconds} s",
            who="alone",
            value=f"{statistics.median(without):,.0f} tps",
        ),
        Row(
            cell=f"pgbench, {CLIENTS} clients, {seconds} s",
            who="a reading every second",
            value=f"{statistics.median(beside):,.0f} tps",
            ratio=f"{loss:+.1%} lost [{min(found.losses):+.1%}-{max(found.losses):+.1%}]",
        ),
        Row(
            cell=f"pgbench, {CLIENTS} clients, {seconds} s",
            who="a reading every minute",
            value=f"{scaled:+.2%} lost",
            bound=f"{LOSS_BOUND:.0%}",
            holds=scaled < LOSS_BOUND,
        ),
    ]


def _pgbench(server: EmbeddedPostgres, *options: str) -> str:
    url = server.url("postgres")
    found = find_binaries()
    done = subprocess.run(
        [str(found.folder / "pgbench"), *options, url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(found.folder.parent / "lib")},
    )
    if done.returncode:
        raise RuntimeError(f"pgbench failed: {done.stderr[-500:]}")
    return done.stdout


def _run_once(server: EmbeddedPostgres, seconds: int) -> float:
    said = _pgbench(server, "-T", str(seconds), "-c", str(CLIENTS), "-j", "1", "-n")
    match = re.search(r"tps = ([\d.]+)", said)
    if match is None:
        raise RuntimeError(f"pgbench told no throughput: {said[-300:]}")
    return float(match[1])


@contextmanager
def _collecting(server: EmbeddedPostgres, store: Path) -> Iterator[None]:
    """Have a collector beside, from its first reading on."""
    command = [sys.executable, "-m", "benchmarks.collector", "--collect", str(store)]
    environment = {**os.environ, "BENCH_TARGET": server.url("postgres")}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        # what it logs comes before
        if process.stdout is None or not any(line.strip() == "reading" for line in process.stdout):
            raise RuntimeError("the collector did not begin")
        yield
    finally:
        process.kill()
        process.communicate()


async def _collect(store_path: Path, url: str) -> None:
    """Collect every second; say so after the first reading, and go on until killed."""
    store = SqliteStore(store_path)
    await store.open()
    collector = Collector(
        targets=Targets([Target.from_url("bench", url, accept_risks=["superuser"])]),
        store=store,
        clock=SystemClock(),
        owner=name_owner(),
        interval_s=INTERVAL_S,
        jitter=lambda: 0.0,
    )
    collector.start()
    while next(collector.metrics()).value < 1:  # noqa: ASYNC110 - a counter tells nobody that it grew
        await asyncio.sleep(0.05)
    print("reading", flush=True)
    await asyncio.Event().wait()


def main() -> int:
    """Measure, print the table, and say whether every bound holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collector", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="pairs of runs (default 8)")
    parser.add_argument("--seconds", type=int, default=8, help="of a run (default 8)")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.collect:
        asyncio.run(_collect(args.collect, os.environ["BENCH_TARGET"]))
        return 0
    rows = measure(rounds=args.rounds, seconds=args.seconds)
    print(render_table(rows))
    missed = [row for row in rows if not row.holds]
    print("every bound holds" if not missed else f"{len(missed)} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
