"""``explain_query`` on SQLite: real files, the real planner."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.explain import QueryPlan
from bot.tools.sqlite.explain import explain_sqlite
from bot.tools.targets import Target

_SECRET = "s3cret-literal"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            create table customers (id integer primary key, name text, city text);
            create table orders (id integer primary key, customer_id integer, total real, status text);
            create index by_status on orders (status);
            create table small (a integer, b integer);
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 40000)
              insert into orders select i, i % 500, i * 1.5, 'open' from n;
            insert into customers select id, 'name ' || id, 'Oslo' from orders limit 500;
            insert into small values (1, 2);
            """
        )
        connection.commit()
    return path


def _content(file: Path) -> bytes:
    return file.read_bytes()


async def _explain(file: Path, sql: str) -> QueryPlan:
    return await explain_sqlite(Target.from_url("shop", f"sqlite:///{file}"), SystemClock(), sql=sql)


async def test_a_scan_of_a_large_table_is_named_with_its_size_and_an_index_that_may_help(file: Path) -> None:
    plan = await _explain(file, f"select * from orders where customer_id = 7 and total > 3 -- {_SECRET}")
    assert plan.findings == (
        "a scan reads all of orders (about 40,000 rows), filtering on customer_id, total: "
        "an index on orders(customer_id, total) may help",
    )
    assert [(line.node, line.relation, line.estimated_rows) for line in plan.rows] == [("SCAN", "orders", 40_000)]
    assert (plan.engine, plan.plan_kind) == ("sqlite", "literal")
    assert (plan.total_cost, plan.estimated_rows) == (None, None)  # not known is not none


async def test_an_alias_is_told_as_its_table(file: Path) -> None:
    plan = await _explain(
        file, "select c.name from orders as o join customers c on c.id = o.customer_id where o.total = 1"
    )
    assert [(line.node, line.relation) for line in plan.rows] == [("SCAN", "orders"), ("SEARCH", "customers")]
    assert "orders(total) may help" in plan.findings[0]


async def test_an_indexed_read_and_a_small_table_are_no_findings(file: Path) -> None:
    for sql in (
        "select * from orders where status = 'paid'",
        "select * from orders where id = 3",
        "select * from small",
    ):
        assert (await _explain(file, sql)).findings == ()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select * from small order by b", "a temporary b-tree is built for ORDER BY"),
        ("select a, count(*) from small group by a", "a temporary b-tree is built for GROUP BY"),
        ("select distinct b from small", "a temporary b-tree is built for DISTINCT"),
        ("select (select count(*) from small s where s.a = o.id) from orders o", "a correlated subquery runs once"),
        ("select 1 from orders o join orders p on p.total = o.total", "an index is built for this one statement"),
    ],
)
async def test_costly_steps_are_named(file: Path, sql: str, words: str) -> None:
    assert any(words in finding for finding in (await _explain(file, sql)).findings)


@pytest.mark.parametrize(
    "sql",
    ["select * from orders where total = $1", "select ?, * from small", "select * from small where a = :a or b = @b"],
)
async def test_placeholders_need_no_values(file: Path, sql: str) -> None:
    assert (await _explain(file, sql)).plan_kind == "generic"


async def test_a_statement_that_writes_is_planned_and_never_run(file: Path) -> None:
    before = _content(file)
    for sql in (
        "delete from orders where total = 1",
        "update orders set total = 0",
        "insert into small select id, id from orders",
        "replace into customers values (1, 'x', 'y')",
        "explain query plan delete from orders",
        "explain delete from orders",
    ):
        plan = await _explain(file, sql)
        assert plan.source.startswith("EXPLAIN QUERY PLAN")
    assert _content(file) == before


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("drop table orders", "not_read_only"),
        ("pragma journal_mode = wal", "not_read_only"),
        ("attach 'x' as y", "not_read_only"),
        ("select load_extension('x')", "not_read_only"),
        ("delete from sqlite_master", "parse_failed"),
        ("select 1; delete from orders", "multiple_statements"),
        ("select * from nothing", "parse_failed"),
        ("select", "parse_failed"),
        ("", "parse_failed"),
    ],
)
async def test_what_has_no_plan_is_refused_with_a_remedy(file: Path, sql: str, code: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        await _explain(file, sql)
    assert failure.value.code == code
    assert failure.value.fix


async def test_no_literal_leaves_with_the_plan(file: Path) -> None:
    plan = await _explain(file, f"select * from orders where status = '{_SECRET}' and total in (select '{_SECRET}')")
    assert _SECRET not in repr(plan)
    with pytest.raises(ToolFailed) as failure:
        await _explain(file, f"select * from orders where '{_SECRET}' '{_SECRET}'")
    assert _SECRET not in f"{failure.value.message} {failure.value.fix}"


async def test_statistics_of_analyze_are_taken_before_the_largest_rowid(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(copy)) as connection:
        connection.executescript(
            "create table t (a); insert into t (rowid, a) values (1000000, 1), (1000001, 2); analyze;"
        )
        connection.commit()
    assert (await _explain(copy, "select * from t")).findings == ()
    with closing(sqlite3.connect(copy)) as connection:
        connection.executescript("drop table sqlite_stat1")
        connection.commit()
    guessed = await _explain(copy, "select * from t")
    assert guessed.findings == ("a scan reads all of t (about 1,000,001 rows)",)
    assert any("largest rowid" in warning for warning in guessed.warnings)
