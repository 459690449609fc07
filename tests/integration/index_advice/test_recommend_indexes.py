"""``recommend_indexes`` as it is called: what it looks at, what it keeps away from, and what it leaves behind."""

from __future__ import annotations

import pytest
from pydantic_core import to_json

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from agent_core.tools.registry import ToolRegistry
from bot.tools.index_advice import register_index_advice_tools
from bot.tools.index_advice.advise import Question, recommend_indexes
from bot.tools.index_advice.choose import Limits
from bot.tools.index_advice.scratch import ScratchLimits
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.targets import Target, Targets
from tests.integration.index_advice.conftest import (
    EQUALITY,
    MemorySnapshots,
    ask,
    fill_warehouse,
    open_warehouse,
    readable,
)
from tests.integration.slow_queries.conftest import check_no_secret
from tests.servers.postgres import Lab

CLOCK = SystemClock()

# -- the three ways to know -----------------------------------------------------------------------------


async def test_hypopg_is_used_where_it_is_and_nothing_hypothetical_stays(
    hypopg_postgres: Lab, store: MemorySnapshots
) -> None:
    _, target = await open_warehouse(hypopg_postgres, hypopg=True)
    report = await ask(readable(target), store, sql=EQUALITY)
    assert [row.verified_by for row in report.rows] == ["hypopg"]
    assert report.rows[0].ddl == "CREATE INDEX CONCURRENTLY orders_customer_id_idx ON public.orders (customer_id);"
    assert report.rows[0].size_bytes > 100_000
    assert "index number 2 of orders, which took" in report.rows[0].write_cost
    assert report.rows[0].queries[0].measured_after_s is None
    check_no_secret(to_json(report).decode(), hypopg_postgres)


async def test_a_generic_statement_is_measured_on_a_copy_with_values_that_rows_have(
    plain_postgres: Lab, store: MemorySnapshots
) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    report = await ask(readable(target), store, sql=EQUALITY + " and created_at > $2 limit $3")
    assert [row.verified_by for row in report.rows] == ["scratch_copy"]
    (query,) = report.rows[0].queries
    assert query.measured_before_s is not None
    assert query.measured_after_s is not None
    assert query.measured_after_s < query.measured_before_s
    assert "orders whole" in report.basis
    check_no_secret(to_json(report).decode(), plain_postgres)


async def test_a_large_table_is_sampled_and_the_answer_says_so(plain_postgres: Lab, store: MemorySnapshots) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    report = await ask(readable(target), store, sql=EQUALITY, scratch=ScratchLimits(most_rows=20_000))
    whole = await ask(readable(target), store, sql=EQUALITY)
    assert "orders 33% of its rows" in report.basis
    # The size is that of the whole index, as far as the sample tells.
    assert report.rows[0].size_bytes == pytest.approx(whole.rows[0].size_bytes, rel=0.6)


async def test_without_hypopg_and_leave_to_copy_rows_advice_is_marked_as_a_guess(
    plain_postgres: Lab, store: MemorySnapshots
) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    report = await ask(target, store, sql=EQUALITY)
    assert [row.verified_by for row in report.rows] == ["heuristic"]
    assert report.rows[0].ddl.endswith("ON public.orders (customer_id);")
    assert (report.rows[0].cost_saved, report.rows[0].queries[0].cost_after) == (None, None)
    assert "allow_sql" in report.warnings[0]
    for sql in ("select * from tiny where name = 'x'", "select * from orders where region > 2"):
        assert not (await ask(target, store, sql=sql)).rows


async def test_no_copy_is_made_where_it_is_switched_off(plain_postgres: Lab, store: MemorySnapshots) -> None:
    _, target = await open_warehouse(plain_postgres, hypopg=False)
    report = await ask(readable(target), store, sql=EQUALITY, scratch=None)
    assert [row.verified_by for row in report.rows] == ["heuristic"]


async def test_types_of_the_schema_go_along_to_the_copy(plain_postgres: Lab, store: MemorySnapshots) -> None:
    database, reader = await plain_postgres.create_database(), await plain_postgres.create_reader()
    async with plain_postgres.admin(database) as admin:
        for statement in (
            'create schema "Odd ones"',
            "create type \"Odd ones\".mood as enum ('so', 'it''s', 'ok')",
            "create domain positive as int check (value > 0)",
            'create table "Odd ones"."Order" ("order" positive not null, "Mood" "Odd ones".mood,'
            ' moods "Odd ones".mood[], n numeric(12, 3), at timestamptz(3) default now())',
            """insert into "Odd ones"."Order" select g, 'it''s', array['so', 'ok']::"Odd ones".mood[], g, now()
               from generate_series(1, 20000) g""",
            'analyze "Odd ones"."Order"',
            f'grant usage on schema "Odd ones" to {reader}',
            f'grant select on "Odd ones"."Order" to {reader}',
        ):
            await admin.execute(statement.encode())
    target = readable(plain_postgres.targets(database, reader)["lab"])
    report = await ask(target, store, sql='select * from "Odd ones"."Order" where "order" = 77')
    assert [row.verified_by for row in report.rows] == ["scratch_copy"]
    async with plain_postgres.admin(database) as admin:
        await admin.execute(report.rows[0].ddl.encode())


# -- what is asked for ----------------------------------------------------------------------------------


async def test_a_fingerprint_and_a_range_lead_to_the_statements_of_the_statistics(
    hypopg_postgres: Lab, store: MemorySnapshots
) -> None:
    database, reader = await fill_warehouse(hypopg_postgres, hypopg=True)
    target = hypopg_postgres.targets(database, reader)["lab"]
    async with hypopg_postgres.admin(database) as admin:
        for number in range(5):
            await admin.execute(f"select * from orders where customer_id = {number}".encode())
        await admin.execute("update orders set note = 'x' where email = 'nobody'")
        await admin.execute("select * from tiny where id = 7")
    shape = fingerprint_sql(EQUALITY)
    single = await ask(target, store, fingerprint=shape)
    assert [query.fingerprint for row in single.rows for query in row.queries] == [shape]
    assert single.window is None
    report = await ask(target, store, time_range="last_1h")
    by_shape = {query.fingerprint: (row, query) for row in report.rows for query in row.queries}
    assert by_shape[shape][1].calls == 5
    update = fingerprint_sql("update orders set note = $1 where email = $2")
    assert "(email)" in by_shape[update][0].ddl
    assert any("tiny" in one.sql for one in report.no_advice)
    assert report.window is not None
    assert not report.coverage.complete  # there was no earlier reading
    assert store.snapshots


async def test_limits_hold(hypopg_postgres: Lab, store: MemorySnapshots) -> None:
    _, target = await open_warehouse(hypopg_postgres, hypopg=True)
    either = "select id from items where id = 777 or order_id = 4242"
    assert len((await ask(target, store, sql=either)).rows) == 2
    assert not (await ask(target, store, sql=either, limits=Limits(max_indexes=1))).rows
    function = "select id from orders where lower(email) = $1"
    assert (await ask(target, store, sql=function)).rows
    assert not (await ask(target, store, sql=function, limits=Limits(min_gain=0.95))).rows
    assert not (await ask(target, store, sql=EQUALITY, limits=Limits(size_budget_bytes=10_000))).rows
    assert (await ask(target, store, sql=EQUALITY, limits=Limits(size_budget_bytes=10_000_000))).rows


async def test_indexes_that_become_redundant_or_are_already_are_named_and_constraints_are_not(
    hypopg_postgres: Lab, store: MemorySnapshots
) -> None:
    database, reader = await hypopg_postgres.create_database(), await hypopg_postgres.create_reader()
    async with hypopg_postgres.admin(database) as admin:
        for statement in (
            "create extension hypopg",
            "create table visits (id bigint primary key, shop int, day date, visitor bigint, filler text)",
            "insert into visits select g, g % 10, date '2026-01-01' + (g % 600)::int, g, repeat('x', 50) "
            "from generate_series(1, 60000) g",
            "create index visits_shop on visits (shop)",
            "create index visits_visitor on visits (visitor)",
            "create index visits_visitor_too on visits (visitor)",
            "create unique index visits_shop_id on visits (shop, id)",
            "create index visits_id_again on visits (id)",
            "create index visits_open on visits (shop) where day is null",
            "vacuum analyze visits",
            f"grant select on visits to {reader}",
        ):
            await admin.execute(statement.encode())
    target = hypopg_postgres.targets(database, reader)["lab"]
    report = await ask(target, store, sql="select * from visits where shop = 3 and day = date '2026-02-02'")
    assert "(day, shop)" in report.rows[0].ddl or "(shop, day)" in report.rows[0].ddl or "(day)" in report.rows[0].ddl
    problems = {one.index: one.problem for one in report.existing}
    assert "visits_visitor does what it does" in problems["visits_visitor_too"]
    assert "visits_pkey does what it does" in problems["visits_id_again"]
    assert "visits_shop_id does what it does" in problems["visits_shop"]
    assert not {"visits_pkey", "visits_shop_id", "visits_open"} & problems.keys()
    ordered = await ask(target, store, sql="select * from visits where shop = 3 order by day desc limit 5")
    assert "(shop, day" in ordered.rows[0].ddl
    assert ordered.rows[0].redundant_with == ("visits_shop",)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select 1", "reads no table"),
        ("select * from parts where id = 5", "only ordinary tables"),
        ("select id from orders where note like $1", "pg_trgm"),
        ("select * from orders where id = 7", "nothing to gain"),
    ],
)
async def test_where_there_is_no_advice_the_reason_is_told(
    hypopg_postgres: Lab, store: MemorySnapshots, sql: str, words: str
) -> None:
    database, target = await open_warehouse(hypopg_postgres, hypopg=True)
    async with hypopg_postgres.admin(database) as admin:
        await admin.execute("create table if not exists parts (id int, n int) partition by range (id)")
        await admin.execute("create table if not exists parts_1 partition of parts for values from (0) to (1000)")
        await admin.execute("grant select on parts, parts_1 to public")
    report = await ask(target, store, sql=sql)
    assert not report.rows
    assert words in report.no_advice[0].reason


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"sql": "select 1", "time_range": "last_1h"}, "parse_failed"),
        ({"sql": "select from where"}, "parse_failed"),
        ({"sql": "select * from no_such_table"}, "parse_failed"),
        ({"sql": "drop table orders"}, "not_read_only"),
        ({"sql": "select 1; select 2"}, "multiple_statements"),
        ({"fingerprint": "0123456789abcdef"}, "unknown_fingerprint"),
        ({"time_range": "last_blue_moon"}, "bad_time_range"),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused_with_a_code(
    hypopg_postgres: Lab, store: MemorySnapshots, question: dict[str, object], code: str
) -> None:
    _, target = await open_warehouse(hypopg_postgres, hypopg=True)
    with pytest.raises(ToolFailed) as caught:
        await recommend_indexes(Targets([target]), store, CLOCK, Question(**question), scratch=None)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.fix


async def test_other_engines_are_told_to_be_unsupported(store: MemorySnapshots) -> None:
    for url in ("mysql://root@127.0.0.1:1/x", "sqlite:///x.db"):
        with pytest.raises(ToolFailed) as caught:
            await ask(Target.from_url("other", url), store, sql="select 1")
        assert caught.value.code == "unsupported"


async def test_a_literal_stays_out_unless_it_is_a_category_that_an_index_is_for(
    hypopg_postgres: Lab, store: MemorySnapshots
) -> None:
    _, target = await open_warehouse(hypopg_postgres, hypopg=True)
    sql = "select id from orders where email = 'planted@secret' and note <> 'planted-too' and customer_id = 424242"
    text = to_json(await ask(target, store, sql=sql)).decode()
    assert "planted" not in text
    assert "424242" not in text


# -- the tool ---------------------------------------------------------------------------------------------


def test_the_tool_names_its_targets_and_takes_its_time(store: MemorySnapshots) -> None:
    registry = ToolRegistry()
    targets = Targets([Target.from_url("shop", "postgresql://x@127.0.0.1:1/x")])
    register_index_advice_tools(registry, targets, store, CLOCK)
    (tool,) = registry.tools()
    assert tool.name == "recommend_indexes"
    assert tool.timeout_s == 120.0
    assert '"shop"' in to_json(tool.parameters).decode()
