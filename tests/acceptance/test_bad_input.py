"""What people get wrong, through the shipped process: each time a clear answer with the remedy, and no secret.

One ``hermod run`` serves the mentions of all cases; the same question goes through ``ask`` and ``tools run``.
The database's passwords are long, odd and each of their own, so that any form of them can be searched for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio
from psycopg import sql

from tests.acceptance.process import HermodProcess
from tests.acceptance.secrecy import find_secrets, read_folder
from tests.integration.cli.command import Done, hermod
from tests.servers.postgres import FIRST, Lab, bare_postgres, postgres
from tests.servers.slack import SlackServer

__all__ = ["bare_postgres", "postgres"]

# The second server speaks only where its own words count.
once = pytest.mark.parametrize("postgres", [FIRST], indirect=True, scope="session")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

BOT_TOKEN, APP_TOKEN = "xoxb-2718281828-b0ttok3nxyz", "xapp-1-A0FAKE-3141592653-app70k3n"
WRONG = "Wr0ng/Pässwörd+%&?:@ of-the-case"


@dataclass(frozen=True, kw_only=True)
class World:
    """A workspace, a process on it, its folder with the settings, and all that must not be said anywhere."""

    slack: SlackServer
    process: HermodProcess
    folder: Path
    lab: Lab
    database: str
    secrets: list[str]
    thorough: bool = True

    async def ask(self, text: str, *, timeout_s: float = 60.0) -> tuple[str, str]:
        """Mention the bot in a new thread; return the whole answer and the id of the run behind it."""
        root = await self.slack.mention(text)
        run = await self._find_run(root, timeout_s)  # an answer is seen while it is written: this waits for its end
        return "\n".join(m["text"] for m in self.slack.bot_messages("C1OPS", root)), run

    async def _find_run(self, root: str, timeout_s: float) -> str:
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.closing(sqlite3.connect(self.folder / "hermod.db", timeout=10)) as connection:
                    query = (
                        "SELECT run_id FROM run WHERE thread_key LIKE ? AND ended_at IS NOT NULL AND NOT EXISTS"
                        " (SELECT 1 FROM outbox WHERE outbox.run_id = run.run_id AND outbox.state <> 'delivered')"
                    )
                    row = connection.execute(query, (f"%/{root}",)).fetchone()
                if row is not None:
                    return str(row[0])
                await asyncio.sleep(0.05)

    async def run(self, *words: str) -> Done:
        """Run a command beside the process, on the same settings and storage."""
        return await asyncio.to_thread(hermod, self.folder, *words, TOOL_LOG=str(self.process.tool_log))

    async def look_back(self, run: str) -> dict[str, str]:
        """Everything that a person can look up about a run."""
        with contextlib.closing(sqlite3.connect(self.folder / "hermod.db", timeout=10)) as connection:
            (thread,) = connection.execute("SELECT thread_key FROM run WHERE run_id = ?", (run,)).fetchone()
        commands = (["trace", run], ["trace", run, "--json"], ["sessions", "show", thread])
        found = await asyncio.gather(*(self.run(*words) for words in commands))
        assert [done.code for done in found] == [0, 0, 0]
        return {" ".join(words[:1] + words[2:]): d.out + d.err for words, d in zip(commands, found, strict=True)}

    def check_secrecy(self, **said: str) -> None:
        """Fail when a secret stands in ``said``, or anywhere else where people or programs look."""
        places = {name: text.encode() for name, text in said.items()} | read_folder(self.folder)
        sent = [c.args for c in self.slack.calls if c.method != "apps.connections.open"]
        places["slack"] = json.dumps(sent, ensure_ascii=False).encode()
        assert {"hermod.db", "hermod.log", "slack"} <= set(places)
        assert find_secrets(self.secrets, places) == []
        assert [name for name, content in places.items() if b"Traceback" in content] == []


# -- the databases -----------------------------------------------------------------------------------


@asynccontextmanager
async def listen(*, rude: bool = False) -> AsyncIterator[int]:
    """A port behind which is no healthy database: it takes connections and says nothing, or hangs up at once."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while not rude and await reader.read(65536):
                pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def freeze_after_login(lab: Lab) -> AsyncIterator[int]:
    """A port to a real server that passes nothing on once somebody has logged in: to a client, a server that hangs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = lab.server.folder / f".s.PGSQL.{lab.server.port}"
        far_reader, far_writer = await asyncio.open_unix_connection(str(where))

        async def answer() -> None:
            said = b""
            # ReadyForQuery, https://www.postgresql.org/docs/current/protocol-message-formats.html
            while not said.endswith(b"Z\0\0\0\5I") and (data := await far_reader.read(65536)):
                said += data
                writer.write(data)

        task = asyncio.create_task(answer())
        with contextlib.closing(writer), contextlib.closing(far_writer):
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    if not task.done():
                        far_writer.write(data)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.contextmanager
def hold_port() -> Iterator[int]:
    """A port at which nothing answers, and which nobody else is given meanwhile: it is bound, and not listened at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


async def make_items(lab: Lab, database: str, owner: str) -> None:
    """A table with three rows that ``owner`` may write and nobody else may read."""
    async with lab.admin(database) as admin:
        await admin.execute("create table items as select generate_series(1, 3) as id")
        await admin.execute(sql.SQL("alter table items owner to {}").format(sql.Identifier(owner)))


async def count_items(lab: Lab, database: str) -> int:
    async with lab.admin(database) as admin:
        row = await (await admin.execute("select count(*) from items")).fetchone()
    assert row is not None
    return int(row[0])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(postgres: Lab, bare_postgres: Lab, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One process, with one target for each thing that can be wrong with a database."""
    lab, bare = postgres, bare_postgres
    database = await lab.create_database()
    reader, alone, owner = await lab.create_reader(), await lab.create_role(), await lab.create_reader()
    bare_reader = await bare.create_reader()
    await make_items(lab, database, owner)
    async with (
        listen() as silent,
        listen(rude=True) as rude,
        freeze_after_login(lab) as frozen,
        contextlib.AsyncExitStack() as stack,
        SlackServer(bot_token=BOT_TOKEN, app_token=APP_TOKEN) as slack,
    ):
        closed = stack.enter_context(hold_port())
        login = f"postgresql://{reader}:{quote(lab.passwords[reader], safe='')}@127.0.0.1"
        urls = {
            "shop": lab.url(database, reader),
            "mine": lab.url(database, owner),
            "alone": lab.url(database, alone),
            "stranger": lab.server.url(database, user=reader, password=WRONG),
            "nodatabase": lab.server.url("no_such_db", user=reader, password=lab.passwords[reader]),
            "down": f"{login}:{closed}/{database}",
            "gone": f"postgresql://{reader}@/{database}?host=/nowhere/at/all&password={quote(WRONG, safe='')}",
            "silent": f"{login}:{silent}/{database}",
            "rude": f"{login}:{rude}/{database}",
            "frozen": f"{login}:{frozen}/{database}",
            "plain": lab.url(await lab.create_database(extension=False), reader),
            "unloaded": bare.url(await bare.create_database(), bare_reader),
            "nothing": bare.url(await bare.create_database(extension=False), bare_reader),
        }
        folder = tmp_path_factory.mktemp("bad-input")
        process = HermodProcess(
            folder,
            slack_url=slack.base_url,
            model_url=None,
            bot_token=BOT_TOKEN,
            app_token=APP_TOKEN,
            extra="".join(f'[targets.{name}]\nurl = "{url}"\n' for name, url in urls.items()),
            verbose=True,
        )
        known = [WRONG, BOT_TOKEN, APP_TOKEN, *lab.passwords.values(), *bare.passwords.values()]
        known += [str(lab.server.folder), str(bare.server.folder), "/nowhere/at/all", f"127.0.0.1:{silent}"]
        await process.start()
        try:
            await slack.wait_connected()
            yield World(
                slack=slack,
                process=process,
                folder=folder,
                lab=lab,
                database=database,
                secrets=known,
                thorough=lab.major == bare.major,  # the second server only needs its own words tried
            )
        finally:
            await process.stop()
    assert slack.violations == []


# -- what is asked -----------------------------------------------------------------------------------


@once
async def test_an_empty_mention_is_answered_with_an_example(world: World) -> None:
    for text in ("", "   ", "\n\n"):
        answer, _ = await world.ask(text)
        assert "which queries were slow in the last 30 minutes?" in answer
    for text in ("", "  "):
        done = await world.run("ask", text)
        assert "which queries were slow in the last 30 minutes?" in done.out
        assert done.err == ""
    world.check_secrecy()


@once
@pytest.mark.parametrize("unit", ["which queries were slow? ", "x", "为什么这么慢", "explain select 1 from items; "])
async def test_60_kb_of_text_are_answered_with_the_limit(world: World, unit: str) -> None:
    text = unit * (60_000 // len(unit.encode()))
    answer, run = await world.ask(text)
    assert "characters; I read up to 16,000" in answer
    assert len(answer) < 1_000
    done = await world.run("ask", text, "--json")
    assert "characters; I read up to 16,000" in str(done.data["answer"])
    assert done.err == ""
    world.check_secrecy(out=done.out, **await world.look_back(run))


@once
async def test_60_kb_of_sql_for_a_tool_are_refused_with_the_limit_and_not_repeated(world: World) -> None:
    done = await world.run("tools", "run", "explain_query", "target=shop", f"sql=select {'1,' * 30_000}1", "--json")
    assert done.code == 1
    assert "50000" in str(done.data["error"])
    assert len(done.out) < 1_000


KNOWN = "alone, down, frozen, gone, mine, nodatabase, nothing, plain, rude, shop, silent, stranger, unloaded"
PRELOAD = "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'"

DATABASES = {
    "warehouse": ("unknown_target", ["there is no target 'warehouse'", KNOWN]),
    "stranger": ("auth_failed", ["refused the user name or password", "its password, password_env or password_file"]),
    "nodatabase": ("connect_failed", ["no such database or role", "correct the database or user name"]),
    "down": ("connect_failed", ["nothing answers at its address", "start the server, or correct host and port"]),
    "gone": ("connect_failed", ["nothing answers at its address", "start the server, or correct host and port"]),
    "rude": ("connect_failed", ["broke the connection off", "the server's log"]),
    "plain": ("extension_missing", ["is not installed in its database", "CREATE EXTENSION pg_stat_statements;"]),
    "unloaded": ("not_preloaded", ["has not loaded it", PRELOAD, "restart the server"]),
    "nothing": ("extension_missing", [PRELOAD, "restart the server", "CREATE EXTENSION pg_stat_statements;"]),
    "alone": ("insufficient_privilege", ["may not see the statements of other roles", "GRANT pg_monitor TO role_"]),
}


@pytest.mark.parametrize("target", DATABASES)
async def test_what_is_wrong_with_a_database_is_named_with_its_remedy(world: World, target: str) -> None:
    code, said = DATABASES[target]
    answer, run = await world.ask(f"which queries were slow in the last 30 minutes on {target}?")
    for words in (f"`{code}`", *said, f"target={target}", "No language model was used"):
        assert words in answer
    world.check_secrecy(answer=answer)
    if world.thorough:
        done = await world.run("tools", "run", "get_slow_queries", f"target={target}", "--json")
        assert (done.code, done.err) == (1, "")
        error = done.data["error"]
        assert isinstance(error, dict)
        assert (done.data["ok"], error["code"]) == (False, code)
        assert [words for words in said if words not in f"{error['message']} {error['fix']}"] == []
        world.check_secrecy(out=done.out, **await world.look_back(run))


@once
@pytest.mark.parametrize("target", ["stranger", "down", "plain", "gone"])
async def test_the_command_line_tells_the_same_of_a_database(world: World, target: str) -> None:
    code, said = DATABASES[target]
    question = f"explain on {target}: select 1" if target == "gone" else f"which queries were slow on {target}?"
    done, told = await asyncio.gather(
        world.run("ask", question, "--verbose"),
        world.run("tools", "run", "get_slow_queries", f"target={target}", "--verbose"),
    )
    assert (done.code, told.code) == (0, 1)  # the run answered; the tool failed
    for words in (f"`{code}`", *said):
        assert words in done.out
        assert words in told.out
    world.check_secrecy(ask=done.out + done.err, tool=told.out + told.err)


@once
async def test_the_doctor_names_every_database_that_is_not_well(world: World) -> None:
    doctor = await world.run("doctor", "--json")
    assert doctor.code == 1
    items = doctor.data["items"]
    assert isinstance(items, list)
    found = {item["part"]: item for item in items}
    for target, (code, said) in DATABASES.items():
        if target != "warehouse":
            told = found[f"target {target}"]
            assert told["text"].startswith(f"{code}: ")
            expected = said[1:] if target == "alone" else said  # it says that in other words
            assert [words for words in expected if words not in f"{told['text']} {told['fix']}"] == []
    assert "stopped answering" in found["target frozen"]["text"]
    assert found["target shop"]["state"] == "ok"
    world.check_secrecy(doctor=doctor.out + doctor.err)


@once
async def test_a_database_that_hangs_is_given_up_long_before_the_run_ends(world: World) -> None:
    question = "which queries were slow in the last 30 minutes on"
    (silent, first), (frozen, second), (planned, third) = await asyncio.gather(
        world.ask(f"{question} silent?"),
        world.ask(f"{question} frozen?"),
        world.ask("on frozen: explain select * from items"),
    )
    assert "the server did not answer in time" in silent
    assert "no firewall is between it and here" in silent
    for answer in (frozen, planned):
        assert "took the connection and then stopped answering" in answer
        assert "a pooler or proxy in front of it" in answer
    for run in (first, second, third):
        found = await world.look_back(run)
        traced = json.loads(found["trace --json"])["run"]
        durations = [step["duration_s"] for step in traced["record"]["steps"] if step["kind"] == "tool"]
        assert len(durations) == 1
        assert 5 <= durations[0] < 30  # limits.tool_timeout_s; the run has 120 s
        world.check_secrecy(**found)


STATEMENTS = {
    ("shop", "select * from items"): (
        "insufficient_privilege",
        ["no right on items", "GRANT SELECT ON items TO role_"],
    ),
    ("mine", "select * from items where"): ("parse_failed", ["syntax error at end of input", "correct the statement"]),
    ("mine", "select id from items wher id = 1"): ("parse_failed", ["syntax error", "line 1, column 27"]),
    ("mine", "select nothing from items"): ("parse_failed", ["nothing", "does not exist", "check the column's name"]),
    ("mine", "select 1; drop table items"): ("multiple_statements", ["explain one statement at a time"]),
    ("mine", "explain drop table items"): ("not_read_only", ["DROP is nothing that this tool plans", "pass a SELECT"]),
    ("mine", "explain truncate table items"): ("not_read_only", ["TRUNCATE is nothing that this tool plans"]),
    ("mine", "delete from items"): (None, ["Delete on items", "planned, not run"]),
    ("mine", "update items set id = id + 1"): (None, ["Update on items", "planned, not run"]),
    ("mine", "with gone as (delete from items returning id) select * from gone"): (None, ["planned, not run"]),
}


@pytest.mark.parametrize(("target", "statement"), STATEMENTS)
async def test_a_statement_is_planned_or_refused_and_never_run(world: World, target: str, statement: str) -> None:
    code, said = STATEMENTS[target, statement]
    explain = "" if statement.startswith("explain") else "explain "
    answer, run = await world.ask(f"on {target}: {explain}{statement}")
    for part in (*([f"`{code}`"] if code else []), *said):
        assert part in answer
    assert await count_items(world.lab, world.database) == 3
    world.check_secrecy(answer=answer)
    if world.thorough:
        words = ("tools", "run", "explain_query", f"target={target}", f"sql={statement}", "--json")
        done = await world.run(*words)
        assert (done.code, done.err) == (0 if code is None else 1, "")
        error = done.data.get("error", {})
        assert isinstance(error, dict)
        assert error.get("code") == code
        assert await count_items(world.lab, world.database) == 3
        world.check_secrecy(out=done.out, **await world.look_back(run))


@once
async def test_explain_analyze_is_refused_by_the_tool_because_it_would_run_the_statement(world: World) -> None:
    for statement in ("explain analyze delete from items", "explain (analyze, buffers) delete from items"):
        done = await world.run("tools", "run", "explain_query", "target=mine", f"sql={statement}", "--json")
        error = done.data["error"]
        assert isinstance(error, dict)
        assert (done.code, error["code"]) == (1, "not_read_only")
        assert "without EXPLAIN ANALYZE" in error["fix"]
    done = await world.run("tools", "run", "explain_query", "target=mine", "sql=select id into thieves from items")
    assert (done.code, "planned, not run" in done.out) == (0, True)
    assert await count_items(world.lab, world.database) == 3
    async with world.lab.admin(world.database) as admin:
        assert await (await admin.execute("select to_regclass('thieves')")).fetchone() == (None,)
