"""``explain_query`` with parameters, fingerprints and forms, and the texts of the statistics that need a repair."""

from __future__ import annotations

import json

import pytest
from pydantic_core import to_json

from agent_core.context import SystemClock
from agent_core.errors import ToolFailed
from bot.tools.slow_queries.explain import QueryPlan, explain_statement
from bot.tools.slow_queries.explain_prepare import ParameterValue
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.targets import Targets
from tests.integration.slow_queries.conftest import check_no_secret
from tests.servers.postgres import Lab

CLOCK = SystemClock()

# 9 of 10 orders are open, one in 20,000 is lost: a plan for one value is wrong for the other.
SCHEMA = """
create table orders (id bigint primary key, customer_id int not null, status text not null, note varchar(40),
                     paid boolean, created_at timestamptz not null, tags text[]);
insert into orders select g, g % 5000, case when g % 20000 = 0 then 'lost' when g % 10 = 0 then 'sent' else 'open' end,
  'note ' || g, g % 3 = 0, timestamptz '2026-01-01' + g * interval '1 minute', array['a', 'b']
  from generate_series(1, 40000) as g;
create index orders_status on orders (status);
create table unread (id int, n int) with (autovacuum_enabled = false);
insert into unread select g, g from generate_series(1, 20000) as g;
analyze orders
"""

_shops: dict[str, tuple[str, str]] = {}


def count(plan: QueryPlan) -> int:
    """The planner's estimate; it has one on Postgres."""
    assert plan.estimated_rows is not None
    return plan.estimated_rows


async def create_shop(lab: Lab) -> tuple[str, Targets]:
    known = _shops.get(str(lab.server.folder))
    if known is None:
        database, reader = await lab.create_database(), await lab.create_reader()
        async with lab.admin(database) as admin:
            await admin.execute(SCHEMA.encode())
            await admin.execute(f"grant select on orders, unread to {reader}".encode())
        known = _shops[str(lab.server.folder)] = (database, reader)
    database, reader = known
    return database, lab.targets(database, reader)


async def explain(lab: Lab, sql: str, params: list[ParameterValue] | None = None) -> QueryPlan:
    _, targets = await create_shop(lab)
    return await explain_statement(targets, CLOCK, sql=sql, params=params)


async def test_given_values_get_the_plan_for_them_and_unknown_ones_the_generic_one(postgres: Lab) -> None:
    sql = "select * from orders where status = $1"
    common, rare = await explain(postgres, sql, ["open"]), await explain(postgres, sql, ["lost"])
    unknown = await explain(postgres, sql)
    assert [plan.plan_kind for plan in (common, rare, unknown)] == ["params", "params", "generic"]
    assert 30_000 <= count(common) <= 40_000
    assert count(rare) <= 10
    assert common.rows[0].node == "Seq Scan"
    assert any("orders_status" in row.text for row in rare.rows)
    assert 10_000 <= count(unknown) <= 20_000  # a third: there are three values
    assert unknown.warnings
    assert not rare.warnings
    assert fingerprint_sql(sql) == common.fingerprint


async def test_the_generic_plan_may_be_asked_for_although_values_are_given(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    plan = await explain_statement(
        targets, CLOCK, sql="select * from orders where status = $1", params=["lost"], mode="generic"
    )
    assert plan.plan_kind == "generic"
    assert count(plan) > 1000


@pytest.mark.parametrize(
    ("where", "params"),
    [
        ("id = $1", [7]),
        ("id = $1", ["7"]),
        ("paid = $1", [True]),
        ("created_at > $1", ["2026-01-20"]),
        ("created_at > now() - $1::interval", ["1 day"]),
        ("id = any($1)", [[1, 2, 3]]),
        ("status = any($1)", [["lost", 'a "quoted" \\\\ one', "it's"]]),
        ("note = $1", ["x'; drop table orders; --"]),
        ("note = $1 and status = $2", [None, "E'\\\\"]),
        ("id < $1", [1.5]),
    ],
)
async def test_values_of_every_kind_are_bound_and_none_is_shown(
    postgres: Lab, where: str, params: list[ParameterValue]
) -> None:
    plan = await explain(postgres, f"select * from orders where {where}", params)
    assert plan.plan_kind == "params"
    text = to_json(plan).decode()
    for value in ("quoted", "drop table", "2026-01-20", "lost"):
        assert value not in text
    check_no_secret(text, postgres)


async def test_the_wrong_number_of_values_is_told_with_the_types_that_are_needed(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    sql = "select * from orders where status = $1 and id = $2"
    with pytest.raises(ToolFailed) as caught:
        await explain_statement(targets, CLOCK, sql=sql, params=["lost"])
    assert caught.value.code == "bad_parameters"
    assert "$1 text, $2 bigint" in caught.value.message
    with pytest.raises(ToolFailed) as caught:
        await explain_statement(targets, CLOCK, sql=sql, params=["lost", "planted-secret"])
    assert caught.value.code == "parse_failed"
    assert "planted" not in caught.value.message


@pytest.mark.parametrize(
    "arguments", [{}, {"sql": "select 1", "fingerprint": "x"}, {"sql": "select $1", "mode": "params"}]
)
async def test_a_question_that_is_none_says_what_to_pass(any_postgres: Lab, arguments: dict[str, str]) -> None:
    _, targets = await create_shop(any_postgres)
    with pytest.raises(ToolFailed) as caught:
        await explain_statement(targets, CLOCK, **arguments)  # type: ignore[arg-type]
    assert caught.value.fix


# -- texts of the statistics -------------------------------------------------------------------------


async def test_d24_a_statement_with_parameters_has_a_generic_plan_in_every_version(postgres: Lab) -> None:
    """https://github.com/dbeaver/dbeaver/issues/37956: GENERIC_PLAN with $1 fails over the extended protocol."""
    plan = await explain(postgres, "select * from orders where customer_id = $1 and note = $2")
    assert plan.plan_kind == "generic"
    assert count(plan) >= 1
    assert plan.rows[0].node == "Seq Scan"  # not the plan for NULL, which reads nothing


@pytest.mark.parametrize(
    ("sql", "note"),
    [
        ("select * from orders where created_at > now() - interval $1", "$1 is taken as interval"),
        ("select * from orders where created_at > date $1 - interval $2 day", "$2 is taken as interval"),
        ("select * from orders where created_at > timestamp with time zone $1", "$1 is taken as timestamp with time"),
        ("select * from orders where created_at > TIMESTAMP(0) $1", "$1 is taken as timestamp ( 0 )"),
        ("select extract(epoch from $1)", "$1 is taken as timestamptz"),
        ("select count(*) from orders where EXTRACT($1 FROM created_at) = $2", "date_part($1, ...)"),
        ("select * from orders where customer_id > $1 + $2", ""),
    ],
)
async def test_d25_a_type_that_only_the_constant_told_is_given_to_the_parameter(
    postgres: Lab, sql: str, note: str
) -> None:
    """https://github.com/DataDog/integrations-core/pull/13434: there is no parameter $1."""
    plan = await explain(postgres, sql)
    assert plan.plan_kind == "generic"
    assert any(note in warning for warning in plan.warnings)


async def test_d26_a_normalised_case_is_planned_or_refused_with_what_to_do(postgres: Lab) -> None:
    """https://github.com/powa-team/powa-web/issues/216: ``then $7`` makes it sum(text), which does not exist."""
    plan = await explain(
        postgres, "select sum(case when paid then $1 else $2 end), avg(coalesce($3, $4)) from orders where id > $5"
    )
    assert any("$1 is taken as integer, $2 is taken as integer" in warning for warning in plan.warnings)
    assert any("$3 is taken as integer, $4 is taken as integer" in warning for warning in plan.warnings)
    with pytest.raises(ToolFailed) as caught:
        await explain(postgres, "select x.a from (select $1 as a) x join orders o on o.created_at = x.a || $2")
    assert caught.value.code == "parse_failed"
    assert caught.value.fix


async def test_what_the_statistics_really_hold_is_planned(postgres: Lab) -> None:
    """Statements with constants everywhere are run, and what pg_stat_statements makes of them is explained."""
    database, targets = await create_shop(postgres)
    statements = (
        "select * from orders where created_at > now() - interval '3 days' and status = 'lost' limit 3",
        "select extract(hour from created_at), sum(case when paid then 1 else 0 end) from orders group by 1",
        "select date_trunc('day', created_at), count(*) from orders where id in (1, 2, 3) group by 1 order by 2 desc",
        "select * from orders where created_at between timestamp '2026-01-01' and date '2026-02-01' offset 2",
        "select coalesce(note, 'none'), substring(note from 2 for 3), 1 + 2 from orders where note like 'note 1%'",
        "select to_char(created_at, 'YYYY'), count(*) filter (where id % 2 = 0) from orders group by 1 limit 3",
    )
    async with postgres.admin(database) as admin:
        for statement in statements:
            await admin.execute(statement.encode())
        cursor = await admin.execute(
            "select query from pg_stat_statements where dbid = (select oid from pg_database where datname = %s) "
            "and query like 'select%%$1%%' and query like '%%from orders%%' and query not like '%%hermod%%'",
            (database,),
        )
        texts = [str(row[0]) for row in await cursor.fetchall()]
    assert len(texts) >= len(statements)
    for text in texts:
        plan = await explain_statement(targets, CLOCK, sql=text)
        assert plan.plan_kind == "generic", text


# -- fingerprints --------------------------------------------------------------------------------------


async def test_a_fingerprint_stands_for_the_shape_with_the_most_time(postgres: Lab) -> None:
    database, targets = await create_shop(postgres)
    # Lists of other lengths are other entries to the server (before 18) and one shape to people.
    async with postgres.admin(database) as admin:
        await admin.execute("select id from orders where customer_id in (77, 78) and note <> 'x'")
        for _ in range(20):  # each reads the whole table
            await admin.execute("select id from orders where customer_id in (77, 78, 79) and note <> 'x'")
    shape = fingerprint_sql("select id from orders where customer_id in ($1, $2) and note <> $3")
    plan = await explain_statement(targets, CLOCK, fingerprint=shape.upper())
    assert plan.fingerprint == shape
    assert plan.plan_kind == "generic"
    if postgres.major < 18:
        assert "in ($1,$2,$3)" in plan.sql.replace(", ", ",")


async def test_an_unknown_fingerprint_says_where_to_take_one_from(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    with pytest.raises(ToolFailed) as caught:
        await explain_statement(targets, CLOCK, fingerprint="0123456789abcdef")
    assert caught.value.code == "unknown_fingerprint"
    assert "get_slow_queries" in caught.value.fix


# -- analyze -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("select nextval('ticks')", "approval_required"),
        ("with a as (select nextval('ticks')) select * from a", "approval_required"),
        ("delete from orders", "not_read_only"),
        ("with gone as (delete from orders returning id) select * from gone", "not_read_only"),
        ("select * from orders for update", "not_read_only"),
        ("select frm", "approval_required"),
        ("select from from", "parse_failed"),
    ],
)
async def test_analyze_needs_an_approval_that_nobody_can_give_so_nothing_runs(
    postgres: Lab, sql: str, code: str
) -> None:
    database, _ = await create_shop(postgres)
    async with postgres.admin(database) as admin:
        await admin.execute("drop sequence if exists ticks; create sequence ticks")
    # A superuser: nothing but the tool itself could stop it.
    with pytest.raises(ToolFailed) as caught:
        await explain_statement(postgres.targets(database, "postgres"), CLOCK, sql=sql, mode="analyze")
    assert caught.value.code == code
    async with postgres.admin(database) as admin:
        cursor = await admin.execute("select (select is_called from ticks), (select count(*) from orders)")
        assert await cursor.fetchone() == (False, 40_000)


# -- what is told --------------------------------------------------------------------------------------


async def test_the_form_json_has_the_whole_tree_without_a_literal(postgres: Lab) -> None:
    _, targets = await create_shop(postgres)
    sql = "select id, 'planted-one' from orders where note = 'planted-two' and customer_id = 424242 order by created_at"
    plan = await explain_statement(targets, CLOCK, sql=sql, form="json")
    tree = json.loads(to_json(plan))["plan"]
    assert tree["Node Type"] == "Sort"
    assert tree["Plans"][0]["Relation Name"] == "orders"
    assert "customer_id" in tree["Plans"][0]["Filter"]
    text = to_json(plan).decode()
    assert "planted" not in text
    assert "424242" not in text
    assert (await explain_statement(targets, CLOCK, sql=sql)).plan is None


async def test_a_table_without_statistics_is_named_and_one_with_them_is_not(postgres: Lab) -> None:
    plan = await explain(postgres, "select * from unread u join orders o on o.id = u.id where u.n = 3")
    assert [f for f in plan.findings if "no statistics" in f] == [
        "there are no statistics on unread, so its rows are guessed: ANALYZE unread"
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "select cast('planted-secret' as int)",
        "select * from orders where id = 'planted-secret'",
        "select * from orders where created_at > 'planted-secret'",
        "select 1 / 0 from orders where note = 'planted-secret' and no_such_column = 'planted-secret'",
        "select no_such_function('planted-secret')",
        "select 'planted-secret' frm orders wher",
        "select json 'planted-secret'",
        "select * from orders where status = 'planted-secret'::no_such_type",
        "select e'planted-secret\\xzz'",
    ],
)
async def test_d23_no_error_of_a_plan_repeats_a_value(postgres: Lab, sql: str) -> None:
    """https://github.com/ankane/pghero/issues/439 (CVE-2023-22626): EXPLAIN's error text leaked data."""
    _, targets = await create_shop(postgres)
    for form in ("summary", "json"):
        try:
            text = to_json(await explain_statement(targets, CLOCK, sql=sql, form=form)).decode()
        except ToolFailed as failure:
            text = f"{failure.message} {failure.fix}"
        assert "planted" not in text
    # The values that are bound are no safer than those that are written.
    try:
        plan = await explain_statement(
            targets, CLOCK, sql="select * from orders where id = $1", params=["planted-secret"]
        )
        text = to_json(plan).decode()
    except ToolFailed as failure:
        text = f"{failure.message} {failure.fix}"
    assert "planted" not in text
