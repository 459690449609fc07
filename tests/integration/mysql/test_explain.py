"""``explain_query`` on a real MariaDB."""

from __future__ import annotations

import asyncio
import time

import pytest
from pydantic_core import to_json

from agent_core.errors import ToolFailed
from bot.tools.mysql.explain import explain_mysql
from bot.tools.targets import Target
from tests.integration.mysql.conftest import CLOCK, check_no_secret
from tests.servers.mariadb import MariaLab


@pytest.fixture(scope="module")
def shop(mariadb: MariaLab) -> Target:
    """A database with a small and a large table, seen by an account that only reads."""
    return asyncio.run(_make_shop(mariadb))


async def _make_shop(mariadb: MariaLab) -> Target:
    database = await mariadb.create_database()
    async with mariadb.connect(database, "root") as app:
        await app.execute("create table customer(id int primary key, name varchar(50), region int, key (region))")
        await app.execute("create table orders(id int primary key, c_id int, total int, note varchar(50))")
        await app.execute("create index k_total on orders(total)")
        await app.execute("insert into customer select seq, concat('n', seq), seq % 10 from seq_1_to_500")
        await app.execute("insert into orders select seq, seq % 500, seq % 997, 'n' from seq_1_to_20000")
        await app.execute("analyze table customer, orders")
    return mariadb.target(database, await mariadb.create_reader(database))


async def test_a_scan_without_an_index_is_said_with_its_rows_and_the_index_that_could_help(shop: Target) -> None:
    plan = await explain_mysql(shop, CLOCK, sql="select * from orders where c_id = 42 and note = 'top secret'")
    assert plan.engine == "mariadb"
    assert [line.node for line in plan.rows] == ["select", "full scan"]
    assert plan.rows[1].relation == "orders"
    assert plan.total_cost is None or plan.total_cost > 0  # a server that tells no costs has not planned for nothing
    assert 15_000 < plan.rows[1].estimated_rows < 25_000
    assert "one on orders(c_id, note) may help" in plan.findings[0]
    text = to_json(plan).decode()
    assert "secret" not in text
    assert "42" not in plan.sql


async def test_a_statement_that_its_index_serves_has_no_finding(shop: Target) -> None:
    plan = await explain_mysql(shop, CLOCK, sql="EXPLAIN select * from orders where total = 5 order by id limit 3;")
    assert plan.rows[-1].text.strip("-> ").startswith("index look-up in orders using k_total")
    assert len(plan.findings) == 1  # the estimate alone


async def test_sorts_temporary_tables_and_joins_are_lines_of_the_tree(shop: Target) -> None:
    sql = (
        "select c.name, sum(o.total) from customer c join orders o on o.c_id = c.id group by c.name "
        "order by sum(o.total) desc"
    )
    plan = await explain_mysql(shop, CLOCK, sql=sql, form="json")
    assert [line.node for line in plan.rows][:3] == ["select", "sort", "temporary table"]
    assert {line.relation for line in plan.rows} >= {"c", "o"}
    assert any("temporary table takes" in finding for finding in plan.findings)
    assert plan.plan is not None
    assert "query_block" in plan.plan


@pytest.mark.parametrize(
    ("sql", "verb"),
    [
        ("update orders set note = 'gone' where c_id = 3", "UPDATE"),
        ("delete from orders where c_id = 3", "DELETE"),
        ("insert into orders select id + 100000, c_id, total, note from orders where c_id = 3", "INSERT"),
    ],
)
async def test_a_write_is_planned_by_the_rows_it_finds_and_writes_nothing(
    mariadb: MariaLab, shop: Target, sql: str, verb: str
) -> None:
    """The account has no right to write, and the server plans a write only for those that have it."""
    plan = await explain_mysql(shop, CLOCK, sql=sql)
    assert any("one on orders(c_id) may help" in finding for finding in plan.findings)
    assert any(f"what the {verb} then writes" in warning for warning in plan.warnings)
    async with mariadb.admin(shop.database) as admin:
        assert await admin.execute("select count(*), min(note), max(note) from orders") == [(20_000, "n", "n")]


async def test_a_digest_is_planned_with_the_values_of_a_kept_execution(mariadb: MariaLab, shop: Target) -> None:
    async with mariadb.connect(shop.database, "root") as app:
        await app.execute("select id, note from orders where total in (3, 4, 5) and c_id = 17 and note = 'private'")
        digest = await app.value(
            "select digest_text from performance_schema.events_statements_summary_by_digest "
            "where schema_name = database() and digest_text like %s",
            ["SELECT ID , `note` FROM%"],
        )
    assert isinstance(digest, str)
    assert "..." in digest
    plan = await explain_mysql(shop, CLOCK, sql=digest)
    assert plan.rows[-1].text.strip("-> ").startswith("index range of orders using k_total")
    assert any("slowest execution" in warning for warning in plan.warnings)
    assert "private" not in to_json(plan).decode()
    again = await explain_mysql(shop, CLOCK, fingerprint=plan.fingerprint)
    assert again.rows == plan.rows


async def test_placeholders_without_a_kept_execution_ask_for_values_instead_of_inventing_them(shop: Target) -> None:
    sql = "select * from orders where id = ? and total > ? and c_id <> 3"
    with pytest.raises(ToolFailed) as caught:
        await explain_mysql(shop, CLOCK, sql=sql)
    assert caught.value.code == "parse_failed"
    assert "params" in caught.value.fix
    plan = await explain_mysql(shop, CLOCK, sql=sql, params=[5, 1])
    assert plan.plan_kind == "params"
    with pytest.raises(ToolFailed) as caught:
        await explain_mysql(shop, CLOCK, sql=sql, params=[5])
    assert (caught.value.code, "2 placeholders and 1 params" in caught.value.message) == ("bad_parameters", True)


@pytest.mark.parametrize(
    "value",
    ["it's", 'say "x"', "back\\slash", "two\nlines", "tab\t", "\x01", "ende\\", '", "k": 1, "c":"', "' or 1=1 -- %s"],
)
async def test_a_value_may_hold_what_mariadb_does_not_escape_in_its_json(shop: Target, value: str) -> None:
    plan = await explain_mysql(
        shop, CLOCK, sql="select * from customer where name like '%' and name = ?", params=[value], form="json"
    )
    assert plan.rows[1].text.endswith("[filter: customer.`name` like ? and customer.`name` = ?]")
    tree = plan.plan
    assert tree is not None
    assert "`name` = ?" in str(tree)
    assert "'k'" not in str(tree)


async def test_explain_of_what_waits_ends_with_the_statements_time_out(
    mariadb: MariaLab, shop: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB evaluates a derived table of one row while it plans."""
    monkeypatch.setattr("bot.tools.mysql.explain.STATEMENT_TIMEOUT_S", 1.5)
    began = time.monotonic()
    with pytest.raises(ToolFailed) as caught:
        await explain_mysql(shop, CLOCK, sql="select * from (select sleep(30)) x")
    assert caught.value.code == "statement_timeout"
    assert time.monotonic() - began < 10


async def test_a_function_that_writes_while_the_server_plans_is_stopped(mariadb: MariaLab, shop: Target) -> None:
    database = shop.database
    async with mariadb.admin(database) as admin:
        await admin.execute("create table trace(n int)")
        await admin.execute(
            "create function leaves_trace(x int) returns int deterministic sql security definer "
            "begin insert into trace values (x); return x; end"
        )
        role = await mariadb.create_role(f"select, execute on {database}.*")
        for sql in ("select * from (select leaves_trace(1)) x", "select * from orders where total = leaves_trace(2)"):
            with pytest.raises(ToolFailed) as caught:
                await explain_mysql(mariadb.target(database, role), CLOCK, sql=sql)
            assert caught.value.code == "not_read_only"
        assert await admin.value("select count(*) from trace") == 0


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("select 1; select 2", "multiple_statements"),
        ("explain analyze select 1", "not_read_only"),
        ("/*!ANALYZE*/ select sleep(9)", "not_read_only"),
        ("drop table orders", "not_read_only"),
        ("select 1 into outfile '/tmp/x'", "not_read_only"),
        ("select 'cut", "parse_failed"),
        ("select from where", "parse_failed"),
        ("select * from nowhere", "parse_failed"),
        ("", "parse_failed"),
        ("select user, password from mysql.user", "insufficient_privilege"),
    ],
)
async def test_what_cannot_be_planned_is_refused_by_name(shop: Target, mariadb: MariaLab, sql: str, code: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await explain_mysql(shop, CLOCK, sql=sql)
    assert caught.value.code == code
    check_no_secret(caught.value.message + caught.value.fix, mariadb)


@pytest.mark.parametrize(("mode", "code"), [("analyze", "approval_required"), ("generic", "unsupported")])
async def test_modes_that_the_server_or_nobody_can_serve_are_refused(shop: Target, mode: str, code: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await explain_mysql(shop, CLOCK, sql="select 1", mode=mode)  # type: ignore[arg-type]
    assert caught.value.code == code
