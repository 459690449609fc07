"""The guards of a connection to MySQL and MariaDB, on a real MariaDB."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import tracemalloc
from datetime import datetime
from decimal import Decimal
from urllib.parse import quote

import pytest

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import open_mysql
from bot.tools.targets import Target
from tests.integration.mysql.conftest import check_no_secret, count_running, wait_until
from tests.integration.mysql.fake_server import run_relay
from tests.servers.mariadb import MariaLab, Session
from tests.stopwatch import hold_at_best, least_wall_s

SURVIVOR_S = 2.0


async def test_rows_come_by_column_name_and_parameters_are_values(mariadb: MariaLab) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    async with open_mysql(mariadb.target(database, role)) as db:
        assert (db.flavor, db.version_num[:2]) == ("mariadb", (10, 11))
        values = ["o'x%s\\", "日本 🐬", None, 7, Decimal("1.50"), b"\x00\xff", datetime(2026, 5, 1, 10, 0, 0, 5)]  # noqa: DTZ001
        rows = await db.fetch(
            "select %s a, %s b, %s c, %s d, %s e, cast(%s as binary) f, cast(%s as datetime(6)) g", values
        )
        assert list(rows[0].values()) == values
        assert await db.fetch_one("select 100 %% 3 as rest, %s as b", [1]) == {"rest": 1, "b": 1}
        assert await db.fetch_one("select 100 % 3 as rest") == {"rest": 1}
        assert await db.fetch_one("select 1 from dual where 1 = 0") is None


async def test_a_unix_socket_in_the_url_is_used(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    target = Target.from_url("lab", mariadb.url("", role, tcp=False))
    async with open_mysql(target) as db:
        row = await db.fetch_one("select substring_index(user(), '@', -1) as came_from")
    assert row == {"came_from": "localhost"}


async def test_the_session_says_that_it_is_hermods(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role)) as db:
        row = await db.fetch_one(
            "select attr_value as name from performance_schema.session_connect_attrs "
            "where processlist_id = connection_id() and attr_name = 'program_name'"
        )
        assert row == {"name": "hermod"}
        assert (await db.fetch_one("select connection_id() as id")) == {"id": db.connection_id}


async def test_a_b_in_one_message_runs_by_the_drivers_default_and_not_here(mariadb: MariaLab) -> None:
    """asyncmy 0.2.18 switches several statements on without being asked."""
    database = await mariadb.create_database()
    role = await mariadb.create_role(f"all on {database}.*")
    async with mariadb.connect(database, role) as plain:
        await plain.execute("create table t(n int); insert into t values (1)")
        await plain.execute("select 1")  # which reads what the message before has left
        assert await plain.value("select count(*) from t") == 1
        async with open_mysql(mariadb.target(database, role)) as db:
            for statement in ("select 1; insert into t values (2)", "select 1; select 2", "select 1;;select 2"):
                with pytest.raises(ToolFailed) as caught:
                    await db.fetch(statement)
                assert caught.value.code == "parse_failed"
                with pytest.raises(ToolFailed):
                    await db.fetch_capped(statement, most_rows=5, most_bytes=1000)
        assert await plain.value("select count(*) from t") == 1


@pytest.mark.parametrize("parameters", [{"a": 1}, [{"a": 1}], [[1, 2]], "text", [object()]])
async def test_a_dict_of_parameters_is_refused_because_its_keys_are_not_escaped(
    mariadb: MariaLab, parameters: object
) -> None:
    """https://github.com/github/advisory-database/pull/9014 (GHSA-qhqw-rrw9-25rm)."""
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role)) as db:
        with pytest.raises(TypeError, match="parameter"):
            await db.fetch("select %s", parameters)  # type: ignore[arg-type]
        assert await db.fetch_one("select 1 as still") == {"still": 1}


async def test_read_only_cannot_be_switched_back_even_by_an_account_that_may_write(mariadb: MariaLab) -> None:
    """Each of these is one message; after all of a way nothing is written."""
    database = await mariadb.create_database()
    role = await mariadb.create_role(f"all on {database}.*")
    ways_out = [
        ["set transaction read write", "insert into t values (2)"],
        ["commit", "insert into t values (2)"],
        ["rollback", "drop table t"],
        ["start transaction read write", "insert into t values (2)"],
        ["set session transaction read write", "commit", "insert into t values (2)"],
        ["set session transaction read write", "drop table t", "insert into t values (2)"],
        ["set autocommit = 0", "insert into t values (2)"],
        ["set session tx_read_only = 0", "alter table t add b int", "insert into t values (2)"],
        ["create table u(a int)"],
        ["truncate table t"],
        ["begin not atomic commit; insert into t values (2); end"],
        ["execute immediate 'set session transaction read write'", "drop table t"],
        ["xa start 'x'", "insert into t values (2)"],
        ["lock tables t write", "insert into t values (2)"],
    ]
    async with mariadb.connect(database, role) as app:
        await app.execute("create table t(n int)")
        await app.execute("insert into t values (1)")
        before = await app.execute("checksum table t")
        for way in ways_out:
            async with open_mysql(mariadb.target(database, role)) as db:
                for statement in way:
                    with contextlib.suppress(ToolFailed):
                        await db.fetch(statement)
            assert await app.execute("checksum table t") == before, way
            assert await app.execute("show tables") == [("t",)], way


async def test_a_compound_statement_is_stopped_by_the_accounts_rights_only(mariadb: MariaLab) -> None:
    """MariaDB runs BEGIN NOT ATOMIC as one statement, in which the transaction can be left: see docs/mysql.md."""
    database = await mariadb.create_database()
    compound = "begin not atomic set session transaction read write; drop table t; end"
    async with mariadb.connect(database, "root") as app:
        await app.execute("create table t(n int)")
        async with open_mysql(mariadb.target(database, await mariadb.create_reader(database))) as db:
            with pytest.raises(ToolFailed) as caught:
                await db.fetch(compound)
            assert caught.value.code == "insufficient_privilege"
        assert await app.execute("show tables") == [("t",)]


async def test_after_a_statement_that_ended_the_transaction_nothing_more_is_sent(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role)) as db:
        await db.fetch("commit")
        with pytest.raises(ToolFailed) as caught:
            await db.fetch("select 1")
        assert caught.value.code == "not_read_only"


async def test_after_an_error_the_connection_goes_on_read_only(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role)) as db:
        with pytest.raises(ToolFailed) as caught:
            await db.fetch("select nothing from nowhere.at_all")
        assert caught.value.code in ("parse_failed", "insufficient_privilege")
        assert await db.fetch_one("select @@in_transaction as inside") == {"inside": 1}


# -- what runs too long ----------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["select sleep(30)", "select benchmark(2000000000, md5('a'))"])
async def test_the_server_ends_what_runs_too_long_and_says_so_even_where_it_does_not(
    mariadb: MariaLab, statement: str
) -> None:
    """MariaDB ends BENCHMARK() at max_statement_time without an error, as if that were its answer."""
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role), statement_timeout_s=1.0) as db:
        began = time.monotonic()
        with pytest.raises(ToolFailed) as caught:
            await db.fetch(statement)
        assert caught.value.code == "statement_timeout"
        assert 1.0 <= time.monotonic() - began < 8
        assert await db.fetch_one("select 1 as goes_on") == {"goes_on": 1}


async def test_a_lock_that_is_not_free_ends_the_wait_with_its_own_code(mariadb: MariaLab) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    async with mariadb.connect(database, "root") as holder:
        await holder.execute("create table t(n int)")
        await holder.execute("lock tables t write")
        async with open_mysql(mariadb.target(database, role), statement_timeout_s=5.0) as db:
            with pytest.raises(ToolFailed) as caught:
                await db.fetch("select * from t")
    assert (caught.value.code, caught.value.retryable) == ("lock_timeout", True)


async def test_d21_functions_that_wait_or_lock_end_with_the_statement_or_the_connection(mariadb: MariaLab) -> None:
    """https://github.com/AgamiAI/agami-core/issues/395: GET_LOCK and SLEEP pass as reads."""
    role = await mariadb.create_reader()
    async with mariadb.admin() as admin:
        async with open_mysql(mariadb.target("", role)) as db:
            assert await db.fetch_one("select get_lock('hermod-d21', 0) as taken") == {"taken": 1}
            assert await admin.value("select is_free_lock('hermod-d21')") == 0
        await wait_until(lambda: _is(admin, "select is_free_lock('hermod-d21')", 1))


async def _is(session: Session, query: str, expected: object) -> bool:
    return await session.value(query) == expected


async def test_a_cancelled_call_leaves_nothing_running_on_the_server(mariadb: MariaLab) -> None:
    """The driver alone leaves it running: https://github.com/long2ice/asyncmy/pull/108 and our own probe."""
    role = await mariadb.create_reader()
    async with mariadb.admin() as admin:

        async def check(attempt: int) -> None:
            task = asyncio.create_task(_sleep(mariadb.target("", role), "survivor_of_cancel"))
            await wait_until(lambda: _runs(admin, "survivor_of_cancel"))
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until(lambda: _gone(admin, "survivor_of_cancel"))
            assert time.monotonic() - began < SURVIVOR_S

        await hold_at_best(check)


async def test_a_call_that_runs_out_of_time_at_the_client_leaves_nothing_running(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with mariadb.admin() as admin:

        async def run_out() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await _sleep(mariadb.target("", role), "survivor_of_timeout")
            await wait_until(lambda: _gone(admin, "survivor_of_timeout"))

        assert await least_wall_s(run_out, enough_s=0.5 + SURVIVOR_S) < 0.5 + SURVIVOR_S


async def test_thirty_cancels_at_any_moment_leave_nothing_running_and_no_session(mariadb: MariaLab) -> None:
    """Also between connecting and the statement, and twice in a row."""
    role = await mariadb.create_reader()
    chooser = random.Random(20)
    async with mariadb.admin() as admin:

        async def check(attempt: int) -> None:
            for number in range(30):
                task = asyncio.create_task(_sleep(mariadb.target("", role), f"survivor_{number}_x"))
                await asyncio.sleep(chooser.choice([0, 0.001, 0.004, 0.008, 0.012, 0.03]))
                task.cancel()
                if number % 3 == 0:
                    await asyncio.sleep(0)
                    task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            began = time.monotonic()
            await wait_until(lambda: _gone(admin, "survivor_"))
            assert time.monotonic() - began < SURVIVOR_S

        await hold_at_best(check)
        left = "select count(*) from information_schema.processlist where user = %s"
        await wait_until(lambda: _has_no_session(admin, left, role))


async def _has_no_session(admin: Session, query: str, role: str) -> bool:
    return await admin.value(query, [role]) == 0


async def _sleep(target: Target, marker: str) -> None:
    async with open_mysql(target, statement_timeout_s=60.0) as db:
        await db.fetch(f"select sleep(50) as {marker}")


async def _runs(admin: Session, marker: str) -> bool:
    return await count_running(admin, marker) > 0


async def _gone(admin: Session, marker: str) -> bool:
    return await count_running(admin, marker) == 0


async def test_a_statement_that_an_administrator_ended_is_told_as_such(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with mariadb.admin() as admin:
        for kill, code in (("kill query", "cancelled"), ("kill", "connect_failed")):
            # the server tells of the first one that it ended before it takes it off its list
            await wait_until(lambda: _gone(admin, "ended_by_hand"))
            task = asyncio.create_task(_sleep(mariadb.target("", role), "ended_by_hand"))
            await wait_until(lambda: _runs(admin, "ended_by_hand"))
            number = await admin.value(
                "select id from information_schema.processlist where info like 'select sleep(50) as ended_by_hand%'"
            )
            await admin.execute(f"{kill} {number}")
            with pytest.raises(ToolFailed) as caught:
                await task
            assert (caught.value.code, caught.value.retryable) == (code, True)


async def test_a_server_that_stops_answering_is_hung_up_on(mariadb: MariaLab, monkeypatch: pytest.MonkeyPatch) -> None:
    role = await mariadb.create_reader()
    async with run_relay(mariadb.server.port) as relay:
        url = f"mysql://{role}:{quote(mariadb.passwords[role])}@127.0.0.1:{relay.port}/"
        began = time.monotonic()
        async with open_mysql(Target.from_url("lab", url), statement_timeout_s=2.0) as db:
            assert await db.fetch_one("select 1 as fine") == {"fine": 1}
            monkeypatch.setattr("bot.tools.mysql.connection.GRACE_S", 0.5)
            relay.freeze()
            with pytest.raises(ToolFailed) as caught:
                await db.fetch("select 2")
    assert (caught.value.code, "stopped answering" in caught.value.message) == ("connect_failed", True)
    assert time.monotonic() - began < 30


# -- how much comes back ---------------------------------------------------------------------------


async def test_rows_are_read_up_to_a_bound_and_the_rest_is_not_sent(mariadb: MariaLab) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    endless = "select seq, repeat('x', 1000) as survivor_rows from seq_1_to_1000000000"
    async with mariadb.admin() as admin:

        async def check(attempt: int) -> None:
            async with open_mysql(mariadb.target(database, role)) as db:
                columns, rows, truncated = await db.fetch_capped(endless, most_rows=10, most_bytes=1_000_000)
                assert (columns, len(rows), truncated) == (("seq", "survivor_rows"), 10, True)
                began = time.monotonic()
                await wait_until(lambda: _gone(admin, "survivor_rows"))
                assert time.monotonic() - began < SURVIVOR_S
                with pytest.raises(ToolFailed) as caught:
                    await db.fetch("select 1")
                assert caught.value.code == "connect_failed"

        await hold_at_best(check)


async def test_the_bound_in_bytes_counts_the_values_and_whole_answers_leave_the_connection_usable(
    mariadb: MariaLab,
) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    async with open_mysql(mariadb.target(database, role)) as db:
        query = "select repeat('é', 50) as t from seq_1_to_9"
        assert (await db.fetch_capped(query, most_rows=9, most_bytes=900))[2] is False
        _, rows, truncated = await db.fetch_capped("select 1 from dual where 1 = 0", most_rows=1, most_bytes=10)
        assert (rows, truncated) == ([], False)
        _, rows, truncated = await db.fetch_capped(query, most_rows=9, most_bytes=899)
        assert (len(rows), truncated) == (8, True)


async def test_one_row_larger_than_the_bound_is_not_read_into_memory(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role)) as db:
        tracemalloc.start()
        try:
            _, rows, truncated = await db.fetch_capped(
                "select repeat('x', 12000000) as t", most_rows=5, most_bytes=100_000
            )
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (rows, truncated) == ([], True)
    assert peak < 4_000_000


# -- who may come in -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grants", "risks"),
    [
        (["all privileges on *.*"], ["file_privilege", "superuser"]),
        (["super on *.*", "select on *.*"], ["superuser"]),
        (["file on *.*"], ["file_privilege"]),
    ],
)
async def test_an_account_with_dangerous_rights_is_refused_unless_the_target_accepts_them_by_name(
    mariadb: MariaLab, grants: list[str], risks: list[str]
) -> None:
    role = await mariadb.create_role(*grants)
    with pytest.raises(ToolFailed) as caught:
        async with open_mysql(mariadb.target("", role)):
            pass
    assert caught.value.code == "dangerous_role"
    assert "hermod targets grant lab" in caught.value.fix
    named = ", ".join(f'"{risk}"' for risk in risks)
    assert f"accept_risks = [{named}]" in caught.value.fix
    async with open_mysql(mariadb.target("", role, accept_risks=risks)) as db:
        assert await db.fetch_one("select 1 as fine") == {"fine": 1}


async def test_dangerous_rights_that_come_by_a_role_are_seen_too(mariadb: MariaLab) -> None:
    user = await mariadb.create_role()
    async with mariadb.admin() as admin:
        await admin.execute("create or replace role strong")
        await admin.execute("grant file on *.* to strong")
        await admin.execute(f"grant strong to {user}@'%'")
        await admin.execute(f"set default role strong for {user}@'%'")
    with pytest.raises(ToolFailed) as caught:
        async with open_mysql(mariadb.target("", user)):
            pass
    assert caught.value.code == "dangerous_role"


async def test_a_wrong_password_database_or_right_has_a_code_and_no_address(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    database = await mariadb.create_database()
    secret = mariadb.passwords[role]
    place = f"127.0.0.1:{mariadb.server.port}"
    for url, code in (
        (f"mysql://{role}:wrong-{secret}@{place}/", "auth_failed"),
        (f"mysql://nobody:{secret}@{place}/", "auth_failed"),
        (f"mysql://{role}:{secret}@{place}/{database}", "insufficient_privilege"),
        (f"mysql://root:{mariadb.passwords['root']}@{place}/no_such_database", "connect_failed"),
        (f"mysql://{role}:{secret}@127.0.0.1:1/", "connect_failed"),
        (f"mysql://{role}:{secret}@/?unix_socket=/nowhere/my.sock", "connect_failed"),
        (f"mysql://{role}:{secret}@{place}/?nonsense=1", "connect_failed"),
        (f"mysql://{role}:{secret}@{place}/?sslmode=perhaps", "connect_failed"),
    ):
        with pytest.raises(ToolFailed) as caught:
            async with open_mysql(Target.from_url("lab", url)):
                pass
        failure = caught.value
        assert failure.code == code, url
        assert failure.fix
        check_no_secret(f"{failure.message} {failure.fix} {failure!r} {failure.__cause__}", mariadb)
        assert "127.0.0.1" not in failure.message + failure.fix


async def test_a_password_of_any_letters_is_sent_as_the_server_has_it(mariadb: MariaLab) -> None:
    """The driver encodes a password in latin-1, in which these have no bytes, or other ones."""
    for number, secret in enumerate(("pässwörd", "пароль🐬", "a@b:c/d?e#f%41")):
        name = f"letters_{number}"
        async with mariadb.admin() as admin:
            await admin.execute(f"create or replace user {name}@'%%' identified by %s", [secret])
        url = f"mysql://{name}:{quote(secret, safe='')}@127.0.0.1:{mariadb.server.port}/"
        async with open_mysql(Target.from_url("lab", url)) as db:
            assert await db.fetch_one("select 1 as fine") == {"fine": 1}


async def test_the_second_host_is_tried_when_nothing_answers_at_the_first(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    url = f"mysql://{role}:{mariadb.passwords[role]}@127.0.0.1:1,127.0.0.1:{mariadb.server.port}/"
    async with open_mysql(Target.from_url("lab", url)) as db:
        assert db.connection_id > 0


async def test_ten_connections_are_closed_politely(mariadb: MariaLab) -> None:
    """A socket that is just closed counts as an aborted client on the server, which monitoring takes for a fault."""
    role = await mariadb.create_reader()
    status = "select variable_value from information_schema.global_status where variable_name = 'aborted_clients'"
    others = "select count(*) from information_schema.processlist where id <> connection_id() and user <> 'system user'"
    async with mariadb.admin() as admin:
        # those of the tests before are not closed politely, and the server counts each once it has noticed
        await wait_until(lambda: _is(admin, others, 0))
        before = await admin.value(status)
        for _ in range(10):
            async with open_mysql(mariadb.target("", role)) as db:
                await db.fetch("select 1")
        assert await admin.value(status) == before
