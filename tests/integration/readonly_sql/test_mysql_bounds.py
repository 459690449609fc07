"""Time, rows, bytes and rights of ``run_readonly_sql`` on a real MariaDB."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from asyncmy.errors import MySQLError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import open_mysql
from bot.tools.readonly_sql.mysql_functions import ALLOWED, BEFORE_QUERY, RESERVED_BEFORE_PAREN, TYPES
from bot.tools.readonly_sql.policy_mysql import check_mysql
from tests.integration.readonly_sql.mysql_state import Place, make_place, read_state
from tests.servers.mariadb import MariaLab, Session, start_mariadb, stop_mariadb
from tests.unit.readonly_sql.mysql_statements import ENDLESS

_BOUND_S = 40.0
_MIB = 1024 * 1024


@pytest.fixture
async def place(mariadb: MariaLab) -> Place:
    return await make_place(mariadb)


@pytest.fixture
async def admin(place: Place) -> AsyncIterator[Session]:
    async with place.lab.admin(place.database) as session:
        yield session


async def _fail(place: Place, statement: str, *, root: bool = False, timeout_s: float = 2.0) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        await place.run(statement, root=root, timeout_s=timeout_s)
    assert failure.value.fix
    return failure.value


async def _wait_until(admin: Session, mark: str, *, running: bool) -> None:
    """Until a statement with ``mark`` in it runs on the server, or none does."""
    async with asyncio.timeout(_BOUND_S):
        while True:
            count = await admin.value(
                "select count(*) from information_schema.processlist where info like %s and id <> connection_id()",
                [f"%{mark}%"],
            )
            if bool(count) is running:
                return
            await asyncio.sleep(0.05)


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ENDLESS)
async def test_what_never_ends_is_ended_on_the_server(place: Place, admin: Session, statement: str) -> None:
    began = time.monotonic()
    failure = await _fail(place, statement, root=True, timeout_s=1.0)
    assert failure.code == "statement_timeout"
    assert time.monotonic() - began < _BOUND_S
    await _wait_until(admin, "endless_", running=False)


async def test_a_statement_that_comes_back_early_and_without_an_error_is_a_timeout(place: Place) -> None:
    """BENCHMARK does so when the server's time-out strikes; the connection tells it by the clock."""
    async with open_mysql(place.reader, statement_timeout_s=1.5) as db:
        with pytest.raises(ToolFailed) as failure:
            await db.fetch_capped("select benchmark(2000000000, md5('a'))", most_rows=5, most_bytes=1000)
    assert failure.value.code == "statement_timeout"


async def test_cancelling_leaves_nothing_behind_on_the_server(place: Place, admin: Session) -> None:
    statement = "select sum(a.seq * b.seq) as cancelled_one from seq_1_to_1000000 a, seq_1_to_1000000 b"
    task = asyncio.create_task(place.run(statement, root=True, timeout_s=30.0))
    await _wait_until(admin, "cancelled_one", running=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _wait_until(admin, "cancelled_one", running=False)


# -- rows and bytes --------------------------------------------------------------------------------


async def test_an_endless_result_is_cut_at_the_asked_rows(place: Place) -> None:
    answer = await place.run("select seq from seq_1_to_100000000", max_rows=7, timeout_s=20.0)
    assert answer.rows == tuple((n,) for n in range(1, 8))
    assert (answer.row_count, answer.more_rows) == (7, True)
    exact = await place.run("select seq from seq_1_to_7", max_rows=7)
    assert (exact.row_count, exact.more_rows) == (7, False)


async def test_the_bytes_that_come_over_the_wire_are_bounded(place: Place, admin: Session) -> None:
    async def sent() -> int:
        rows = await admin.execute("show global status like 'Bytes_sent'")
        return int(str(rows[0][1]))

    before = await sent()
    answer = await place.run("select seq, repeat('x', 100000) from seq_1_to_20000", max_rows=1000, timeout_s=20.0)
    after = await sent()
    assert answer.more_rows
    assert answer.row_count < 1000
    assert any("fit" in warning for warning in answer.warnings)
    # The whole result has 1.9 GiB; what the kernel's buffers take is on top of what was read.
    assert after - before < 64 * _MIB


async def test_a_row_that_is_larger_than_an_answer_is_left_out_and_said(place: Place) -> None:
    answer = await place.run(
        "select group_concat(repeat('x', 100000)) from seq_1_to_9 union all select 'y'", timeout_s=20.0
    )
    assert answer.cells_cut + answer.more_rows >= 1
    assert answer.warnings


async def test_a_long_value_is_cut_and_counted(place: Place) -> None:
    answer = await place.run("select repeat('x', 50000)")
    assert answer.cells_cut == 1
    assert answer.truncated.bytes > 40_000


# -- values and parameters -------------------------------------------------------------------------


async def test_values_come_as_what_json_holds_without_a_loss(place: Place) -> None:
    answer = await place.run(
        "select 9223372036854775807, 1.50, 1e0, 'é東', null, x'00ff', timestamp '2026-01-02 03:04:05.5',"
        " date '2026-01-02', cast('-26:03:04' as time), flags from customers where id = 1"
    )
    assert answer.rows == (
        (
            *("9223372036854775807", "1.50", 1.0, "é東", None, "<2 bytes>"),
            *("2026-01-02T03:04:05.500000", "2026-01-02", "-26:03:04", 1),
        ),
    )
    assert answer.types[:4] == ("integer", "decimal", "double", "text")


async def test_parameters_are_values_and_nothing_else(place: Place) -> None:
    evil = "x' or 1=1; drop table orders; -- \\' %s ?"
    answer = await place.run("select ?, '?', '%', 7 % 4, ? from orders where id = ? limit 1", evil, None, 1)
    assert answer.rows == ((evil, "?", "%", 3, None),)
    with pytest.raises(ToolFailed) as failure:
        await place.run("select ?", "a", "b")
    assert failure.value.code == "bad_parameters"


async def test_a_percent_sign_needs_no_doubling(place: Place) -> None:
    answer = await place.run("select name from customers where name like 'A%' and '%s' = '%s'")
    assert answer.rows == (("Ann",),)


# -- rights ----------------------------------------------------------------------------------------


async def test_a_function_whose_body_is_hidden_is_not_run(mariadb: MariaLab, place: Place) -> None:
    reader = await mariadb.create_reader(place.database)
    async with mariadb.admin() as admin:
        await admin.execute(f"grant execute on {place.database}.* to {reader}@'%'")
    blind = Place(lab=mariadb, database=place.database, root=place.root, reader=mariadb.target(place.database, reader))
    failure = await _fail(blind, "select vat(1)")
    assert failure.code == "insufficient_privilege"
    assert f"GRANT SELECT ON mysql.proc TO {reader}" in str(failure.fix)
    async with mariadb.admin() as admin:
        await admin.execute(f"grant select on mysql.proc to {reader}@'%'")
    assert (await blind.run("select vat(1)")).rows == (("0.25",),)


async def test_a_view_whose_text_is_hidden_is_not_run(mariadb: MariaLab, place: Place) -> None:
    reader = await mariadb.create_role(f"select on {place.database}.*")
    blind = Place(lab=mariadb, database=place.database, root=place.root, reader=mariadb.target(place.database, reader))
    failure = await _fail(blind, "select * from paid")
    assert failure.code == "insufficient_privilege"
    assert "GRANT SHOW VIEW" in str(failure.fix)
    assert (await blind.run("select count(*) from orders")).rows == ((3,),)


async def test_a_view_in_a_database_with_capitals_is_judged_too(place: Place, admin: Session) -> None:
    name = f"Upper_{place.database}"
    await admin.execute(f"create database {name}")
    try:
        await admin.execute(f"create view {name}.Hidden as select sleep(20) as a")
        failure = await _fail(place, f"select * from {name}.Hidden", root=True)
        assert failure.code == "not_read_only"
    finally:
        await admin.execute(f"drop database {name}")


@pytest.mark.service("mariadb")
async def test_a_password_among_the_servers_variables_is_not_shown() -> None:
    lab = await asyncio.to_thread(start_mariadb, {"report-password": "s3cret-report"})
    try:
        database = await lab.create_database()
        target = lab.target(database, await lab.create_reader(database))
        place = Place(lab=lab, database=database, root=target, reader=target)
        for statement in (
            "show variables",
            "show global variables like 'report%'",
            "select @@report_password",
            "select hex(@@global.report_password)",
            "select @@global.`report_password`",
            "select @@global/**/./**/Report_Password",
            "select variable_value from information_schema.global_variables where variable_name like 'report_p%'",
            "select substr(global_value, 2) from information_schema.system_variables",
        ):
            failure = await _fail(place, statement)
            assert failure.code in ("insufficient_privilege", "parse_failed"), statement
            assert "s3cret" not in f"{failure.message} {failure.fix}"
        assert (await place.run("select @@max_connections > 1")).rows == ((1,),)
    finally:
        await asyncio.to_thread(stop_mariadb, lab)


async def test_a_dangerous_account_is_refused_unless_the_operator_accepts_it(mariadb: MariaLab, place: Place) -> None:
    target = mariadb.target(place.database, "root")
    careless = Place(lab=mariadb, database=place.database, root=target, reader=target)
    assert (await _fail(careless, "select 1")).code == "dangerous_role"


# -- what the policy takes for granted -------------------------------------------------------------


async def test_every_allowed_function_is_one_of_the_servers_own(mariadb: MariaLab) -> None:
    """Else a stored or loaded function could have the name. Point and its kin exist with arguments only."""
    missing: list[str] = []
    async with mariadb.admin() as admin:
        for name in sorted(ALLOWED["mariadb"]):
            try:
                await admin.execute(f"select {name}()")
            except MySQLError as error:
                if error.args[0] == 1305:
                    missing.append(name)
    assert missing == [
        *("geometrycollection", "linestring", "multilinestring", "multipoint", "multipolygon", "point", "polygon"),
    ]


async def test_no_stored_function_can_be_called_by_a_word_of_the_grammar(place: Place, admin: Session) -> None:
    called: list[str] = []
    for word in sorted((RESERVED_BEFORE_PAREN | TYPES | BEFORE_QUERY) - {"lateral"}):
        await admin.execute(f"create or replace function `{word}`(a int) returns int return 777")
        for statement in (f"select {word}(1)", f"select 1, {word} (1)", f"select 1 from dual where 1 = {word}(1) or 1"):
            try:
                rows = await admin.execute(statement)
            except MySQLError:
                continue
            called += [word] * (777 in rows[0])
    assert called == []


_MARKS = (
    "/*",
    "*/",
    "/*!",
    "/*!50000",
    "/*M!",
    "--",
    "-- ",
    "#",
    "\n",
    "'",
    '"',
    "`",
    "\\",
    "''",
    " ",
    ";",
    ",",
    "(",
    ")",
)
_WORDS = (
    "drop table logs",
    "insert into logs values (5, 'x')",
    "into outfile '{dir}/z'",
    "get_lock('hermod', 0)",
    "burn(1)",
)
_MORE = ("union", "select", "1", "from", "logs", "set", "@a", "for update", "as", "a")


async def test_no_nesting_of_comments_and_quotes_gets_a_write_through(place: Place, admin: Session) -> None:
    """Whatever the policy lets pass runs on the live server with root's rights, and changes nothing."""
    before = await read_state(place.lab, admin, place.database)
    passed: list[str] = []

    @settings(max_examples=300, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from((*_MARKS, *_WORDS, *_MORE)), min_size=1, max_size=9))
    def collect(pieces: list[str]) -> None:
        text = place.spell("select 1 " + " ".join(pieces) if len(pieces) % 2 else "select 1 " + "".join(pieces))
        try:
            check_mysql(text, database=place.database)
        except ToolFailed:
            return
        passed.append(text)

    collect()
    ran: list[bool] = []
    for text in dict.fromkeys(passed):
        try:
            await place.run(text, root=True)
        except ToolFailed:
            ran.append(False)
        else:
            ran.append(True)
    assert any(ran)
    assert await read_state(place.lab, admin, place.database) == before
