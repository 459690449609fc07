"""The shipped process in a chat, on a real Postgres, with the account that ``hermod targets grant`` makes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.process import HermodProcess, until
from tests.servers.postgres import FIRST, Lab, start_lab, stop_lab
from tests.servers.slack import SlackServer

pytestmark = pytest.mark.timeout(240)

PASSWORD = "made-for-the-lab-1"
CHANNEL = "C1OPS"
READING_S = 5
"""The collector's least interval."""

TABLES = """\
create table customers (id int primary key, name text);
create table orders (id int primary key, customer_id int, note text);
insert into customers select n, 'c' || n from generate_series(1, 100) n;
insert into orders select n, n % 100, md5(n::text) || repeat('x', 70) from generate_series(1, 30000) n;
create index orders_note_a on orders (note);
create index orders_note_b on orders (note);
analyze customers, orders;
"""
SETTINGS = """
[targets.shop]
url = "{url}"
[targets.open]
url = "{url}"
allow_sql = true
[collector]
interval_s = {interval_s}
"""


@pytest.fixture(scope="module", params=[FIRST])
def server(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server of its own: what else happens on one would be in the answers."""
    lab = start_lab(request.param)
    yield lab
    stop_lab(lab)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A running Hermod, the chat that it is in, and the database that it looks at."""

    lab: Lab
    database: str
    slack: SlackServer
    hermod: HermodProcess

    async def ask(self, text: str, *wanted: str) -> str:
        """Mention the bot and return all that it says, text and blocks as JSON, once everything wanted is in it.

        What is wrong with a command is told only to the person who gave it.
        """
        told = len(self.slack.ephemerals)
        root = await self.slack.mention(text, channel=CHANNEL)

        def said() -> str:
            messages = [*self.slack.bot_messages(CHANNEL, root), *self.slack.ephemerals[told:]]
            return json.dumps(messages, ensure_ascii=False)

        try:
            await self.slack.wait_until(lambda: all(words in said() for words in wanted))
        except TimeoutError:
            raise AssertionError(f"{wanted} is not in the answer to {text!r}: {said()}") from None
        return said()

    async def wait_file(self, ending: str) -> bytes:
        """The newest file of that kind, once it has come."""

        def found() -> list[str]:
            blobs = self.slack.blobs
            return [key for key, file in self.slack.files.items() if file["name"].endswith(ending) and key in blobs]

        await self.slack.wait_until(found)
        return bytes(self.slack.blobs[found()[-1]])

    def count_readings(self) -> int:
        """How many readings of the first target are stored."""
        with closing(sqlite3.connect(f"file:{self.hermod.database}?mode=ro", uri=True)) as store:
            (count,) = store.execute("select count(*) from snapshot where target = 'shop'").fetchone()
        return int(count)


@asynccontextmanager
async def open_place(folder: Path, lab: Lab, *, interval_s: int = 600) -> AsyncIterator[Place]:
    database = await lab.create_database()
    role = f"hermod_{database}"
    async with lab.admin(database) as admin:
        await admin.execute(TABLES)
    async with SlackServer(ack_timeout=10.0) as slack:
        url = lab.server.url(database, user=role, password=PASSWORD)
        extra = SETTINGS.format(url=url, interval_s=interval_s)
        hermod = HermodProcess(folder, slack_url=slack.base_url, model_url=None, extra=extra)
        await make_account(folder, hermod, lab, database)
        await hermod.start()
        try:
            await slack.wait_connected()
            await hermod.wait_ready()
            yield Place(lab=lab, database=database, slack=slack, hermod=hermod)
            assert slack.violations == []
        finally:
            assert await hermod.stop() == 0


async def make_account(folder: Path, hermod: HermodProcess, lab: Lab, database: str) -> None:
    """Run the script that ``hermod targets grant`` prints, as an administrator would."""
    script = folder / "grant.sql"
    with script.open("wb") as output:
        assert await (await hermod.start_command("targets", "grant", "shop", output=output)).wait() == 0
    text = script.read_text()
    assert "PUT-A-PASSWORD-HERE" in text
    async with lab.admin(database) as admin:
        await admin.execute(text.replace("PUT-A-PASSWORD-HERE", PASSWORD).encode())


@asynccontextmanager
async def chain_of_four(place: Place) -> AsyncIterator[tuple[int, ...]]:
    """Sessions of which each waits for the one before it; their process ids, the root first."""
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(
                    place.lab.server.url(place.database), application_name=name, autocommit=True
                )
            )
            for name in ("till_root", "till_second", "till_third", "till_fourth")
        ]
        for number, session in enumerate(sessions, 1):
            await session.execute("begin")
            await session.execute("update customers set name = 'held' where id = %s", (number,))
        pids = tuple(session.info.backend_pid for session in sessions)
        async with asyncio.TaskGroup() as group:
            for number, session in enumerate(sessions[1:], 1):
                group.create_task(_wait_for_row(session, number))
            await wait_blocked(place, pids)
            yield pids
            await sessions[0].execute("rollback")


async def _wait_for_row(session: psycopg.AsyncConnection[tuple[object, ...]], number: int) -> None:
    await session.execute("update customers set name = 'wanted' where id = %s", (number,))
    await session.execute("rollback")


async def list_blocked(place: Place, pids: tuple[int, ...]) -> list[tuple[int, list[int]]]:
    async with place.lab.admin(place.database) as admin:
        rows = await admin.execute(
            "select pid, pg_blocking_pids(pid) from pg_stat_activity where pid = any(%s) order by pid", (list(pids),)
        )
        return [(pid, holders) for pid, holders in await rows.fetchall() if holders]


def waiting(pids: tuple[int, ...]) -> list[tuple[int, list[int]]]:
    """What ``list_blocked`` gives while each waits for the one before it."""
    return sorted(zip(pids[1:], ([pid] for pid in pids), strict=False))


async def wait_blocked(place: Place, pids: tuple[int, ...]) -> None:
    async with asyncio.timeout(60):
        while await list_blocked(place, pids) != waiting(pids):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.05)


async def run_tool(place: Place, name: str, *words: str) -> str:
    """What ``hermod tools run`` prints."""
    path = place.hermod.folder / f"{name}.out"
    with path.open("wb") as output:
        command = await place.hermod.start_command("tools", "run", name, "target=shop", *words, output=output)
        await command.wait()
    return path.read_text()


async def test_plain_questions_reach_the_right_tool_and_no_session_is_ended(tmp_path: Path, server: Lab) -> None:
    async with open_place(tmp_path, server) as place, chain_of_four(place) as pids:
        root = f"Root: session {pids[0]}"
        for question in ("who is blocking whom on shop?", "shop 上谁在阻塞谁？"):
            await place.ask(question, "blocking_tree", root, "till_root", "3 sessions wait", *map(str, pids))
        await place.ask("which indexes are unused on shop?", "index_health", "orders_note_a", "orders_note_b")
        for question in ("is the database shop healthy?", "shop 数据库健康吗？"):
            await place.ask(question, "db_health", "of usable connections", "idle_in_transaction")
        assert "approval_required" in await run_tool(place, "cancel_query", f"pid={pids[1]}")
        assert "approval_required" in await run_tool(place, "terminate_session", f"pid={pids[0]}")
        await place.ask(f"please cancel the query of pid {pids[1]} on shop", str(pids[1]))
        assert await list_blocked(place, pids) == waiting(pids)


async def test_commands_bring_a_table_a_file_and_the_sql(tmp_path: Path, server: Lab) -> None:
    async with open_place(tmp_path, server) as place:
        async with server.admin(place.database) as app:
            await app.execute("select count(*), pg_sleep(0.3) from orders where note = 'planted-secret'")
        outcome = await place.slack.slash("/slowq", "limit=5 target=shop threshold=0.1")
        assert not outcome.error
        table = (await place.wait_file(".csv")).decode()
        assert "pg_sleep($1) from orders where note = $2" in table
        await place.slack.wait_until(lambda: "pg_sleep($1)" in json.dumps(place.slack.bot_messages(CHANNEL)))
        await place.ask("slowq target=shop threshold=0.1 echo_sql=true", "transaction read only", "pg_stat_statements(")
        await place.ask('run_readonly_sql target=shop sql="select 1"', "not_allowed", "allow_sql = true")
        await place.ask('run_readonly_sql target=open sql="select count(*) as n from orders"', "30,000")
        await place.ask('run_readonly_sql target=open sql="delete from orders"', "not_read_only")
        async with server.admin(place.database) as admin:
            left = await (await admin.execute("select count(*) from orders")).fetchone()
        assert left == (30_000,)
        assert "planted-secret" not in table + json.dumps(place.slack.bot_messages(CHANNEL))


async def test_readings_of_the_collector_make_ranges_complete(tmp_path: Path, server: Lab) -> None:
    pytest.importorskip("matplotlib", reason="the plotting library is an extra")
    async with open_place(tmp_path, server, interval_s=READING_S) as place:
        await until(lambda: place.count_readings() >= 2)
        middle = datetime.now(UTC)
        async with server.admin(place.database) as app:
            for _ in range(5):
                await app.execute("select pg_sleep(0.2)")
        enough = place.count_readings() + 3
        await until(lambda: place.count_readings() >= enough)
        answer = await place.ask("slowq target=shop time_range=last_10s threshold=0", "window between two readings")
        assert "Not fully covered" not in answer
        ranges = (
            f"a={iso(middle - timedelta(seconds=READING_S))}/{iso(middle)} b={iso(middle)}/{iso(datetime.now(UTC))}"
        )
        compared = await place.ask(f"compare_windows target=shop {ranges}", "pg_sleep($1)")
        assert "calls 5" in compared
        # Of a minute's own buckets there may be only one, as the clock stands, and one is not drawn.
        trend = f"query_trend target=shop fingerprint={read_fingerprint(place)} time_range=last_1min bucket=10s"
        await place.ask(trend, "pg_sleep($1)")
        assert (await place.wait_file(".png")).startswith(b"\x89PNG")


def iso(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


def read_fingerprint(place: Place) -> str:
    """Of the statement that slept, as the stored readings have it."""
    with closing(sqlite3.connect(f"file:{place.hermod.database}?mode=ro", uri=True)) as store:
        query = "select fingerprint from statement where target = 'shop' and sql = 'select pg_sleep($1)'"
        return str(store.execute(query).fetchone()[0])
