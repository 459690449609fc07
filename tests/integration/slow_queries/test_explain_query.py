"""``explain_query`` against real servers: it plans, it never runs, and it says where a statement is wrong."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg.rows import TupleRow
from pydantic_core import to_json

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.explain import explain_statement
from bot.tools.targets import Targets
from tests.integration.slow_queries.conftest import check_no_secret
from tests.servers.postgres import Lab

CLOCK = SystemClock()

SCHEMA = """
create table orders (id bigint primary key, customer_id int not null, note text, total numeric(10, 2));
insert into orders select g, g % 5000, 'note ' || g, g from generate_series(1, 50000) as g;
create table customers (id int primary key, name text);
insert into customers select g, 'name ' || g from generate_series(1, 5000) as g;
create table hidden (id int);
analyze orders, customers, hidden
"""


_shops: dict[str, tuple[str, str]] = {}


async def create_shop(lab: Lab, *, superuser: bool = False) -> tuple[str, Targets]:
    """A small shop and a target on it, as a reader or (to prove the guards alone) as a superuser.

    One a server, because no test may change it.
    """
    known = _shops.get(str(lab.server.folder))
    if known is None:
        database, reader = await lab.create_database(), await lab.create_reader()
        async with lab.admin(database) as admin:
            await admin.execute(SCHEMA.encode())
            await admin.execute(f"grant select on orders, customers to {reader}".encode())
        known = _shops[str(lab.server.folder)] = (database, reader)
    database, reader = known
    return database, lab.targets(database, "postgres" if superuser else reader)


async def failure_of(lab: Lab, targets: Targets, statement: str) -> ToolFailed:
    with pytest.raises(ToolFailed) as caught:
        await explain_statement(targets, CLOCK, sql=statement)
    check_no_secret(f"{caught.value.message} {caught.value.fix}", lab)
    return caught.value


async def test_a_scan_of_a_whole_table_is_found_with_the_column_that_lacks_an_index(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    plan = await explain_statement(targets, CLOCK, sql="select * from orders where customer_id = $1 order by id")
    assert plan.plan_kind == "generic"
    assert [row.depth for row in plan.rows] == sorted(row.depth for row in plan.rows)
    scan = next(row for row in plan.rows if row.node == "Seq Scan")
    assert scan.relation == "orders"
    assert 1 <= scan.estimated_rows <= 100  # the generic plan, not the one for NULL, which reads nothing
    assert "customer_id = $1" in scan.text
    assert any("sequential scan reads all of orders" in f and "orders(customer_id)" in f for f in plan.findings)
    check_no_secret(to_json(plan).decode(), postgres)


async def test_the_same_statement_has_the_same_plan_with_its_value_and_the_value_is_not_shown(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    plan = await explain_statement(
        targets, CLOCK, sql="select * from orders where customer_id = 4242 and note = 'planted-secret' -- planted-too"
    )
    assert plan.plan_kind == "literal"
    text = to_json(plan).decode()
    assert "planted" not in text
    assert "4242" not in text
    assert any("orders" in finding and "customer_id" in finding for finding in plan.findings)


async def test_a_subquery_without_an_index_is_told_as_a_scan_that_runs_many_times(any_postgres: Lab) -> None:
    _, targets = await create_shop(any_postgres)
    plan = await explain_statement(
        targets,
        CLOCK,
        sql="select c.id, (select max(o.total) from orders o where o.customer_id = c.id) from customers c",
    )
    assert any("about 5,000 times" in finding for finding in plan.findings)


@pytest.mark.parametrize(
    "statement",
    [
        "explain select 1",
        "EXPLAIN (format json, verbose) select 1",
        "explain verbose (select 1);",
        "/* a comment */ select 1 ; -- the end",
        "((select 1))",
        "with one as (select 1 as n) select n from one",
        "values (1), (2)",
        "select id from orders where note = 'a;b' and id > $1",
        "select 'it''s; fine', E'it\\'s; fine', $tag$a;b$tag$",
        "update orders set note = $2 where id = $1",
        "insert into orders (id, customer_id) values ($1, $2)",
        "delete from orders where id = $1",
        "merge into orders o using customers c on c.id = o.id when matched then update set note = c.name",
    ],
)
async def test_honest_statements_are_planned_and_change_nothing(postgres: Lab, statement: str) -> None:
    database, targets = await create_shop(postgres, superuser=True)
    plan = await explain_statement(targets, CLOCK, sql=statement)
    assert plan.rows
    assert await count_rows(postgres, database) == (50_000, None)


async def count_rows(lab: Lab, database: str) -> tuple[int, str | None]:
    """The rows of ``orders``, and whether the table that the attacks try to make exists."""
    async with lab.admin(database) as admin:
        cursor = await admin.execute("select (select count(*) from orders), to_regclass('planted')::text")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0]), row[1]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("commit; create table planted (a int)", "multiple_statements"),
        ("select 1; create table planted (a int)", "multiple_statements"),
        ("select $1; commit; create table planted (a int)", "multiple_statements"),
        ("select 1 /* ; */; drop table orders", "multiple_statements"),
        ("select 'a\\'; commit; create table planted (a int); --'", "multiple_statements"),
        ("explain analyze delete from orders", "not_read_only"),
        ("EXPLAIN (ANALYZE) delete from orders", "not_read_only"),
        ("explain (format json, analyze true) delete from orders", "not_read_only"),
        ("explain /* x */ analyse verbose delete from orders", "not_read_only"),
        ("create table planted (a int)", "not_read_only"),
        ("commit", "not_read_only"),
        ("set transaction read write", "not_read_only"),
        ("execute hermod_statement", "not_read_only"),
        ("do $$ begin delete from orders; end $$", "not_read_only"),
        ("copy orders to program 'true'", "not_read_only"),
        ("select 'cut off", "parse_failed"),
        ("select 1 /* cut off", "parse_failed"),
        (" ; ", "parse_failed"),
        ("select frm orders where", "parse_failed"),
    ],
)
async def test_everything_else_is_refused_and_changes_nothing_even_as_a_superuser(
    postgres: Lab, statement: str, code: str
) -> None:
    database, targets = await create_shop(postgres, superuser=True)
    failure = await failure_of(postgres, targets, statement)
    assert failure.code == code
    assert await count_rows(postgres, database) == (50_000, None)


async def test_the_server_refuses_a_second_statement_even_when_ours_did_not_see_it(
    postgres: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own check is switched off here: the protocol has to hold by itself."""
    database, targets = await create_shop(postgres, superuser=True)
    for statement in ("select 1; commit; create table planted (a int)", "commit; create table planted (a int)"):
        for parameters in (False, True):
            with monkeypatch.context() as patch:
                patch.setattr(
                    "bot.tools.slow_queries.explain.take_statement", lambda sql, p=parameters: (sql, p), raising=True
                )
                failure = await failure_of(postgres, targets, statement)
            assert failure.code in ("multiple_statements", "parse_failed")
    assert await count_rows(postgres, database) == (50_000, None)


async def test_a_function_that_writes_while_the_plan_is_made_is_stopped(postgres: Lab) -> None:
    """A function that lies about being immutable runs at planning time; READ ONLY stops its write."""
    database, targets = await create_shop(postgres, superuser=True)
    async with postgres.admin(database) as admin:
        await admin.execute("create sequence counter")
        await admin.execute(
            "create function liar() returns bigint immutable language plpgsql as "
            "$$ begin return nextval('counter'); end $$"
        )
    failure = await failure_of(postgres, targets, "select * from orders where id = liar()")
    assert failure.code == "not_read_only"
    async with postgres.admin(database) as admin:
        cursor = await admin.execute("select is_called from counter")
        assert await cursor.fetchone() == (False,)


async def test_a_plan_that_takes_too_long_is_ended_on_the_server(
    any_postgres: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, targets = await create_shop(any_postgres, superuser=True)
    async with any_postgres.admin(database) as admin:
        await admin.execute(
            "create function sleeper() returns int immutable language sql as $$ select 1 from pg_sleep(30) $$"
        )
        monkeypatch.setattr("bot.tools.slow_queries.explain.STATEMENT_TIMEOUT_S", 0.3)
        failure = await failure_of(any_postgres, targets, "select * from orders where id = sleeper()")
        assert failure.code == "statement_timeout"
        assert failure.fix
        cursor = await admin.execute("select count(*) from pg_stat_activity where query like '%sleeper()%'")
        row = await cursor.fetchone()
    assert row == (1,)  # this question itself


async def test_a_table_that_is_locked_ends_the_wait_and_may_be_tried_again(
    any_postgres: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, targets = await create_shop(any_postgres)
    monkeypatch.setattr("bot.tools.slow_queries.explain.STATEMENT_TIMEOUT_S", 1.0)
    async with any_postgres.admin(database) as admin, admin.transaction():
        await admin.execute("lock table customers in access exclusive mode")
        failure = await failure_of(any_postgres, targets, "select * from customers where id = $1")
    assert (failure.code, failure.retryable) == ("lock_timeout", True)


async def test_a_call_that_is_cancelled_is_cancelled_on_the_server_too(any_postgres: Lab) -> None:
    database, targets = await create_shop(any_postgres, superuser=True)
    async with any_postgres.admin(database) as admin:
        await admin.execute(
            "create function dreamer() returns int immutable language sql as $$ select 1 from pg_sleep(60) $$"
        )
        call = asyncio.create_task(explain_statement(targets, CLOCK, sql="select * from orders where id = dreamer()"))
        await wait_for_sessions(admin, 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await wait_for_sessions(admin, 0)


async def wait_for_sessions(admin: psycopg.AsyncConnection[TupleRow], count: int) -> None:
    """Wait until so many sessions of Hermod's are busy planning, at most a minute."""
    async with asyncio.timeout(60):
        while True:
            cursor = await admin.execute(
                "select count(*) from pg_stat_activity where application_name = 'hermod' and state = 'active' "
                "and datname = current_database() and query like 'EXPLAIN%'"
            )
            if await cursor.fetchone() == (count,):
                return


async def test_errors_in_the_statement_say_where_they_are(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    failure = await failure_of(postgres, targets, "select id\nfrom orders\nwhere customer_id = = 1")
    assert failure.code == "parse_failed"
    assert "line 3, column 21" in failure.message
    failure = await failure_of(postgres, targets, "select * from no_such_table where id = $1")
    assert "no_such_table" in failure.message
    assert "line 1, column 15" in failure.message
    failure = await failure_of(postgres, targets, "select no_such_column from orders")
    assert "no_such_column" in failure.message


async def test_an_error_does_not_repeat_a_value_of_the_statement(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    failure = await failure_of(postgres, targets, "select * from orders where id = 'planted-secret'")
    assert failure.code == "parse_failed"
    assert "planted" not in failure.message
    assert "bigint" in failure.message


async def test_a_missing_right_names_the_grant(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    failure = await failure_of(postgres, targets, "select * from hidden")
    assert failure.code == "insufficient_privilege"
    assert failure.fix.startswith(f"GRANT SELECT ON hidden TO {targets['lab'].user};")


async def test_a_text_that_no_type_can_repair_is_told(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    failure = await failure_of(postgres, targets, "select no_such_function($1, customer_id) from orders")
    assert failure.code == "parse_failed"
    assert "no_such_function" in failure.message
    assert "line 1, column 8" in failure.message
    assert "$1::integer" in failure.fix
