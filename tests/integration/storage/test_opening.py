"""What a Postgres must be like to keep Hermod's rows, and what is said where it is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import psycopg
import pytest

from bot.storage import open_store
from bot.storage.base import StoreError
from bot.storage.postgres_migrate import load_migrations
from tests.contract.store.makers import A, new_item
from tests.integration.storage.conftest import Home, make_home, opened
from tests.ports import free_port
from tests.servers.postgres import FIRST, Lab, start_lab, stop_lab

PATIENCE_S = 60


async def refuse(url: str) -> str:
    """Try to open a store, and return why it cannot be."""
    store = open_store(url)
    with pytest.raises(StoreError) as caught:
        await store.open()
    with pytest.raises(StoreError, match="not open"):
        await store.ping()
    return str(caught.value)


async def test_a_database_of_its_own_is_all_that_hermod_needs(lab: Lab) -> None:
    home = await make_home(lab)
    for _ in range(2):
        async with opened(home.url) as store:
            await store.accept(new_item("e1"), queue_limit=9)
            await store.ping()
    async with opened(home.url.replace("postgresql://", "postgres://")) as store:
        assert await store.knows_thread(A)


async def test_connections_say_whose_they_are(home: Home) -> None:
    names = f"SELECT DISTINCT application_name FROM pg_stat_activity WHERE usename = '{home.role}'"
    async with opened(home.url) as store, asyncio.timeout(PATIENCE_S):
        while await home.run_sql(names) != [("hermod",)]:  # one that begins is nameless, and one that rests may end
            await store.ping()


# -- addresses -------------------------------------------------------------------------------------


async def test_a_wrong_password_is_said_and_not_repeated(home: Home) -> None:
    said = await refuse(home.url.replace(home.secret, "hunter2"))
    assert "refused the user name or password" in said
    assert "hunter2" not in said


async def test_a_missing_database_is_said(home: Home) -> None:
    said = await refuse(home.url.replace(f"/{home.database}?", "/nowhere?"))
    assert "no connection to the Postgres database nowhere: the server has no such database; CREATE DATABASE" in said
    assert home.secret not in said


async def test_a_role_that_may_not_connect_is_said(home: Home) -> None:
    await home.run_sql(f"REVOKE CONNECT ON DATABASE {home.database} FROM PUBLIC, {home.role}")
    assert "GRANT CONNECT ON DATABASE" in await refuse(home.url)


async def test_an_address_where_nothing_listens_is_said() -> None:
    said = await refuse(f"postgresql://hermod:hunter2@127.0.0.1:{free_port()}/hermod")
    assert "no connection to the Postgres database hermod at 127.0.0.1: nothing answers at its address" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("secret", ["hun/ter@2", "hun?ter@2", "hun#ter@2", "hunter@2@", "hun/ter2"])
async def test_a_password_that_was_not_escaped_is_not_repeated(secret: str) -> None:
    with pytest.raises(StoreError) as caught:
        await open_store(f"postgresql://localhost:{secret}@db.localhost:{free_port()}/hermod").open()
    assert not any(part in str(caught.value) for part in ("hun", "ter"))


async def test_a_server_that_says_nothing_is_given_up() -> None:
    """The connection is taken, and no answer ever comes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        async with asyncio.timeout(PATIENCE_S):
            said = await refuse(f"postgresql://hermod:hunter2@127.0.0.1:{port}/hermod")
    assert "did not answer in time" in said


# -- rights and schemas ----------------------------------------------------------------------------


async def test_a_role_that_may_make_no_tables_is_told_the_statement_that_lets_it(home: Home) -> None:
    await home.run_sql(f"ALTER DATABASE {home.database} OWNER TO postgres")
    await home.run_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    said = await refuse(home.url)
    _, found, statement = said.partition("as its owner: ")
    assert found, said
    await home.run_sql(statement)
    async with opened(home.url) as store:
        await store.accept(new_item("e1"), queue_limit=9)


async def test_a_schema_of_the_roles_own_is_where_the_tables_are(home: Home) -> None:
    await home.run_sql(f"CREATE SCHEMA {home.role} AUTHORIZATION {home.role}")
    async with opened(home.url):
        assert await home.run_sql("SELECT schemaname FROM pg_tables WHERE tablename = 'thread'") == [(home.role,)]


async def test_two_hermods_live_in_two_schemas_of_one_database(home: Home) -> None:
    await home.run_sql(f"CREATE SCHEMA blue AUTHORIZATION {home.role}; CREATE SCHEMA green AUTHORIZATION {home.role}")
    async with opened(f"{home.url}&options=-csearch_path%3Dblue") as blue:
        await blue.accept(new_item("e1"), queue_limit=9)
        async with opened(f"{home.url}&options=-csearch_path%3Dgreen") as green:
            assert not await green.knows_thread(A)
        assert await blue.knows_thread(A)


async def test_a_search_path_that_leads_nowhere_is_said(home: Home) -> None:
    assert "has no schema" in await refuse(f"{home.url}&options=-csearch_path%3Dnowhere")


async def test_a_schema_that_came_in_front_of_the_tables_does_not_start_an_empty_hermod(home: Home) -> None:
    async with opened(home.url) as store:
        await store.accept(new_item("e1"), queue_limit=9)
    await home.run_sql(f"CREATE SCHEMA {home.role} AUTHORIZATION {home.role}")
    said = await refuse(home.url)
    assert "Hermod's tables are in the schema public, later in search_path" in said


async def test_a_table_of_the_same_name_is_another_programs(home: Home) -> None:
    await home.run_sql("CREATE TABLE thread (id int)")
    assert "has a table thread of another program" in await refuse(home.url)
    assert await home.run_sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]


async def test_tables_of_other_names_are_left_alone(home: Home) -> None:
    await home.run_sql("CREATE TABLE orders (id int)")
    async with opened(home.url) as store:
        await store.ping()


@pytest.mark.parametrize("columns", ["version bigint, applied_at bigint", "version text, description text"])
async def test_a_schema_version_of_another_program_is_refused(home: Home, columns: str) -> None:
    await home.run_sql(f"CREATE TABLE schema_version ({columns})")
    assert "has a schema_version of another program" in await refuse(home.url)


async def test_a_schema_that_is_newer_is_refused_and_left_as_it_is(home: Home) -> None:
    async with opened(home.url):
        pass
    await home.run_sql("INSERT INTO schema_version VALUES (999, 0)")
    assert "was made by a newer Hermod (schema 999" in await refuse(home.url)


async def test_a_database_of_the_first_schema_keeps_its_runs_and_gets_what_it_lacks(home: Home) -> None:
    await home.run_sql(
        f"SET ROLE {home.role};"
        "CREATE TABLE schema_version (version bigint PRIMARY KEY, applied_at bigint NOT NULL);"
        f"{load_migrations()[0][1]}"
        "INSERT INTO schema_version VALUES (1, 0);"
        f"INSERT INTO thread (thread_key, last_at) VALUES ('{A}', 0);"
        "INSERT INTO run (run_id, thread_key, agent, state, attempt, started_at, ended_at, error, record)"
        f" VALUES ('r1', '{A}', 'ops', 'error', 1, 0, 1, 'deadline', '')"
    )
    for _ in range(2):
        async with opened(home.url) as store:
            found = await store.load_run("r1")
            assert found is not None
            assert (found[0].error, found[0].reason) == ("deadline", "")
    newest = load_migrations()[-1][0]
    assert await home.run_sql("SELECT max(version) FROM schema_version") == [(newest,)]


async def test_tables_of_another_role_are_not_half_used(home: Home) -> None:
    async with opened(home.url):
        pass
    reader = await home.lab.create_role()
    await home.run_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}")
    assert "may not read and write the table" in await refuse(home.lab.url(home.database, reader))


async def test_an_encoding_that_cannot_hold_every_text_is_refused(any_lab: Lab) -> None:
    role = await any_lab.create_role()
    async with any_lab.admin() as admin:
        await admin.execute(
            f"CREATE DATABASE ascii_{role} OWNER {role} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0".encode()
        )
    said = await refuse(any_lab.url(f"ascii_{role}", role))
    assert "has the encoding SQL_ASCII" in said
    assert "ENCODING 'UTF8'" in said


# -- servers ---------------------------------------------------------------------------------------


async def test_a_role_that_is_read_only_is_refused(home: Home) -> None:
    await home.run_sql(f"ALTER ROLE {home.role} SET default_transaction_read_only = on")
    assert "turn default_transaction_read_only off" in await refuse(home.url)


@pytest.mark.parametrize("kind", [FIRST])
def test_a_standby_is_refused_and_one_that_a_primary_became_is_said(kind: str) -> None:
    lab = start_lab(kind, preload=False, settings={"wal_level": "replica", "max_wal_senders": "2"})
    try:
        asyncio.run(_become_standby(lab))
    finally:
        stop_lab(lab)


async def _become_standby(lab: Lab) -> None:
    home = await make_home(lab)
    async with opened(home.url) as store:
        await store.accept(new_item("e1"), queue_limit=9)
        signal = lab.server.folder / "data" / "standby.signal"
        await asyncio.to_thread(signal.touch)
        # Ready means that it takes writes, which a standby never does; so the wait for it is ended from here.
        restarting = asyncio.create_task(lab.server.restart())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await _is_standby(lab):  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(0.05)
        finally:
            restarting.cancel()
            await asyncio.wait({restarting})
        assert await store.knows_thread(A)
        with pytest.raises(StoreError, match="point \\[storage\\] url at the primary"):
            await store.accept(new_item("e2"), queue_limit=9)
    assert "is a standby, which takes no writes" in await refuse(home.url)


async def _is_standby(lab: Lab) -> bool:
    with suppress(psycopg.OperationalError):
        async with lab.admin() as admin:
            row = await (await admin.execute("SELECT pg_is_in_recovery()")).fetchone()
            return row is not None and row[0] is True
    return False


async def test_a_server_that_is_too_old_is_refused_with_the_version_from_which_on_it_works(home: Home) -> None:
    """A real server behind a wire on which its version reads 11."""
    async with _older(home.lab) as port:
        said = await refuse(f"postgresql://{home.role}:{home.secret}@127.0.0.1:{port}/{home.database}")
    assert "is served by Postgres 11; Hermod needs 12 or newer" in said


@asynccontextmanager
async def _older(lab: Lab) -> AsyncIterator[int]:
    async with lab.admin() as admin:
        row = await (await admin.execute("SHOW server_version")).fetchone()
    assert row is not None
    real = f"server_version\0{row[0]}\0".encode()
    shown = b"server_version\x00" + b"11.9".ljust(len(str(row[0])), b" ") + b"\x00"

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data.replace(real, shown))
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        path = lab.server.folder / f".s.PGSQL.{lab.server.port}"
        there_reader, there_writer = await asyncio.open_unix_connection(str(path))
        await asyncio.gather(pass_on(reader, there_writer), pass_on(there_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port: int = server.sockets[0].getsockname()[1]
        yield port
    async with asyncio.timeout(PATIENCE_S):  # the client has hung up
        await asyncio.gather(*(task for task in serving if task is not None))
