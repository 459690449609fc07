"""What ``run_readonly_sql`` returns from real Postgres servers, and whom it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from agent_core.context import RunContext
from agent_core.errors import ToolFailed
from agent_core.llm.types import ToolCall
from agent_core.tools.executor import ToolExecutor
from agent_core.tools.registry import ToolRegistry
from bot.redact import SecretRedactor
from bot.tools.readonly_sql.tools import register_readonly_sql_tools
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.slow_queries.explain import explain_statement
from bot.tools.slow_queries.preflight import preflight
from bot.tools.targets import Targets
from tests.integration.readonly_sql.postgres_field import CLOCK, Field, Stopwatch, open_field
from tests.servers.postgres import Lab


@pytest.fixture(scope="module")
def field(postgres: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with open_field(postgres, tmp_path_factory.mktemp("read")) as built:
        yield built


async def cell_of(field: Field, expression: str) -> object:
    """The only cell of a statement."""
    answer = await field.run(field.reader, f"select {expression}")
    return answer.rows[0][0]


@pytest.mark.parametrize(
    ("expression", "cell"),
    [
        ("true", True),
        ("null", None),
        ("7", 7),
        ("9007199254740992", 9007199254740992),
        ("9007199254740993", "9007199254740993"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0.1::float8", 0.1),
        ("'nan'::float8", "NaN"),
        ("'-infinity'::float8", "-Infinity"),
        ("1.10::numeric", "1.10"),
        ("'nan'::numeric", "NaN"),
        ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
        ("'2026-03-01 10:00:00.25+02'::timestamptz", "2026-03-01T08:00:00.25Z"),
        ("'2026-03-01 10:00:00'::timestamp", "2026-03-01T10:00:00"),
        ("'0044-03-15 BC'::date", "0044-03-15 BC"),
        ("'infinity'::timestamptz", "infinity"),
        ("'1 year 2 mons 3 days 04:05:06'::interval", "1 year 2 mons 3 days 04:05:06"),
        ("'10:00:00+02'::timetz", "10:00:00+02"),
        (r"'\x00ff10'::bytea", "<3 bytes>"),
        ("""'{"b": 1, "a": [1.0, 12345678901234567890]}'::jsonb""", '{"a": [1.0, 12345678901234567890], "b": 1}'),
        ("array[1, null, 3]", "{1,NULL,3}"),
        ("row(1, 'a b')", '(1,"a b")'),
        ("'ok'::mood", "ok"),
        ("'äöü 漢字 🐘'", "äöü 漢字 🐘"),
        ("E'tab\\tline\\nend'", "tab\tline\nend"),
        ("'10.0.0.0/8'::inet", "10.0.0.0/8"),
        ("''", ""),
    ],
)
async def test_a_value_comes_through_without_a_loss(field: Field, expression: str, cell: object) -> None:
    found = await cell_of(field, expression)
    assert found == cell
    assert type(found) is type(cell)
    assert json.loads(json.dumps(found)) == cell


async def test_columns_have_their_names_and_types_also_when_names_are_twice_there(field: Field) -> None:
    answer = await field.run(
        field.reader, "select 1 as a, 'x' as a, null as \"b c\", 'ok'::mood as m, 1.5::numeric(5,2) as n"
    )
    assert answer.columns == ("a", "a", "b c", "m", "n")
    assert answer.types == ("int4", "text", "text", "mood", "numeric(5,2)")
    assert answer.rows == ((1, "x", None, "ok", "1.50"),)


async def test_the_answer_says_what_was_run_where(field: Field) -> None:
    answer = await field.run(field.reader, " /* who? */ select id from lab_acct order by id limit 2 -- two\n;")
    assert answer.sql == "select id from lab_acct order by id limit 2 -- two"
    assert (answer.ok, answer.target, answer.engine, answer.row_count) == (True, "as_reader", "postgresql", 2)
    assert answer.engine_version.startswith(f"{field.lab.major}.")
    assert "READ ONLY" in answer.source
    assert answer.warnings == ()
    assert answer.took_ms > 0


async def test_the_order_of_the_statement_is_the_order_of_the_answer(field: Field) -> None:
    answer = await field.run(field.reader, "select id from lab_acct order by md5(id::text) desc")
    expected = field.watcher.execute("select id from lab_acct order by md5(id::text) desc").fetchall()
    assert [row[0] for row in answer.rows] == [row[0] for row in expected]


@pytest.mark.parametrize("count", [99, 100, 101])
async def test_more_rows_are_announced_exactly_when_there_are_some(field: Field, count: int) -> None:
    answer = await field.run(field.reader, f"select * from generate_series(1, {count})", max_rows=100)
    assert answer.row_count == min(count, 100)
    assert answer.more_rows is (count > 100)
    assert any("more rows than the 100" in warning for warning in answer.warnings) is (count > 100)


async def test_of_two_million_rows_only_those_asked_for_leave_the_server(field: Field) -> None:
    field.watcher.execute("select public.pg_stat_statements_reset()")
    answer = await field.run(field.reader, "select * from generate_series(1, 2000000)", max_rows=1000)
    assert answer.row_count == 1000
    counted = field.watcher.execute(
        "select coalesce(sum(rows), 0)::int from public.pg_stat_statements where query ilike 'fetch %hermod_rows%'"
    ).fetchone()
    assert counted is not None
    assert 1000 < counted[0] <= 1100


async def test_a_long_text_is_cut_on_the_server_and_counted(field: Field) -> None:
    answer = await field.run(field.reader, "select repeat('ä', 10000) as long, 'short' as short")
    cell = answer.rows[0][0]
    assert cell == "ä" * 4000
    assert answer.cells_cut == 1
    assert answer.truncated.bytes == 12_000
    assert any("cut to 4000" in warning for warning in answer.warnings)


async def test_a_statement_without_columns_still_has_its_rows(field: Field) -> None:
    answer = await field.run(field.reader, "select from lab_acct where id <= 3")
    assert (answer.columns, answer.rows) == ((), ((), (), ()))


async def test_values_are_passed_apart_from_the_text(field: Field) -> None:
    answer = await field.run(
        field.reader,
        "select $1::int + 1, $2::text, $3::bool, $4::text, $5::numeric / 4",
        41,
        "x'; drop table lab_acct; --",
        True,
        None,
        41,
    )
    assert answer.rows == ((42, "x'; drop table lab_acct; --", True, None, "10.2500000000000000"),)
    answer = await field.run(field.reader, "select id from lab_acct where id = $1 and note like $2", 3, "a%")
    assert answer.rows == ((3,),)


async def test_instants_do_not_depend_on_the_roles_zone_and_style(field: Field) -> None:
    role = field.reader.user
    field.watcher.execute(f"alter role \"{role}\" set timezone = 'Asia/Tokyo'".encode())
    field.watcher.execute(f"alter role \"{role}\" set datestyle = 'SQL, DMY'".encode())
    try:
        assert await cell_of(field, "'2026-03-01 00:00+00'::timestamptz") == "2026-03-01T00:00:00Z"
        assert await cell_of(field, "current_setting('timezone')") == "UTC"
        assert await cell_of(field, "date '2026-03-04'") == "2026-03-04"
    finally:
        field.watcher.execute(f'alter role "{role}" reset timezone'.encode())
        field.watcher.execute(f'alter role "{role}" reset datestyle'.encode())


async def test_a_builtin_view_cannot_be_replaced_by_one_in_the_search_path(field: Field) -> None:
    role = field.reader.user
    field.watcher.execute(f'alter role "{role}" set search_path = public, pg_catalog'.encode())
    try:
        found = await cell_of(field, "count(*) > 100 from pg_class")
        assert found is True
        assert await cell_of(field, "relname from public.pg_class") == "spoofed"
    finally:
        field.watcher.execute(f'alter role "{role}" reset search_path'.encode())


async def test_an_empty_search_path_does_no_harm(field: Field) -> None:
    role = field.reader.user
    field.watcher.execute(f"alter role \"{role}\" set search_path = ''".encode())
    try:
        assert await cell_of(field, "count(*) from public.lab_acct") == 10
    finally:
        field.watcher.execute(f'alter role "{role}" reset search_path'.encode())


# -- ends ------------------------------------------------------------------------------------------


async def test_a_statement_that_waits_for_a_lock_is_given_up(field: Field) -> None:
    with psycopg.connect(field.lab.server.url(field.database)) as holder:
        holder.execute("lock table lab_txt in access exclusive mode")
        watch = Stopwatch()
        failure = await field.refuse(field.reader, "select * from lab_txt", timeout_s=1.0)
        assert failure.code == "lock_timeout"
        assert watch.seconds < 20


ENDLESS = "with recursive x as (select 1 as n union all select n + 1 from x) select count(*) from x"


async def test_a_statement_that_takes_too_long_is_ended_on_the_server(field: Field) -> None:
    failure = await field.refuse(field.reader, ENDLESS, timeout_s=0.5)
    assert failure.code == "statement_timeout"
    assert "timeout_s" in failure.fix
    await wait_until(field, running=[])


async def test_a_cancelled_call_is_cancelled_on_the_server(field: Field) -> None:
    task = asyncio.create_task(field.run(field.reader, ENDLESS, timeout_s=30.0))
    await wait_until(field, running=["hermod"])
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(field, running=[])


async def wait_until(field: Field, *, running: list[str]) -> None:
    """Wait for the ``application_name`` of the sessions in which the reader fetches rows just now."""
    statement = """select application_name from pg_stat_activity
        where state = 'active' and query like 'fetch forward%%' and usename::text = %s"""
    async with asyncio.timeout(60):
        found = None
        while found != running:
            found = [row[0] for row in field.watcher.execute(statement, (field.reader.user,)).fetchall()]
            await asyncio.sleep(0.01)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("select nope from lab_acct", "parse_failed", 'column "nope" does not exist (line 1, column 8'),
        ("select *\nfrom lab_acct\nwhere bal = 'g3heim'", "query_failed", "(line 3, column 13"),
        (" /* ä */\n select nope", "parse_failed", "(line 2, column 9 of the statement)"),
        ("select 'g3heim'::int", "query_failed", "invalid input syntax"),
        ("select 1 / (id - 1) from lab_acct order by id", "query_failed", "division by zero"),
        ("select note::int from lab_acct", "query_failed", "invalid input syntax"),
        ("select ('g3heim' || id)::int from lab_acct", "query_failed", "invalid input syntax"),
        ("selekt 'g3heim'", "parse_failed", "cannot be read"),
        ("select * from lab_hidden", "insufficient_privilege", "lab_hidden"),
    ],
)
async def test_an_error_says_where_it_is_and_holds_no_data(field: Field, sql: str, code: str, said: str) -> None:
    field.watcher.execute("create table if not exists public.lab_hidden (id int)")
    field.watcher.execute(f'revoke select on public.lab_hidden from "{field.reader.user}"'.encode())
    failure = await field.refuse(field.reader, sql)
    assert (failure.code, said in failure.message) == (code, True), f"{failure.code}: {failure.message}"
    assert "g3heim" not in failure.message + failure.fix
    assert "a note" not in failure.message + failure.fix
    for secret in field.lab.passwords.values():
        assert secret not in failure.message + failure.fix


@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3)])
async def test_as_many_values_as_parameters_are_needed(field: Field, given: tuple[int, ...]) -> None:
    failure = await field.refuse(field.reader, "select $1::int + $2::int", *given)
    assert failure.code == "parse_failed"
    assert f"2 parameters ($1, $2, ...), and {len(given)} values" in failure.message


async def test_settings_are_shown_together_only_while_none_of_them_holds_a_secret(field: Field) -> None:
    everything = "select name, setting from pg_settings"
    field.watcher.execute("create or replace view public.settings as select * from pg_catalog.pg_settings")
    assert (await field.run(field.superuser, everything, max_rows=1000)).row_count > 100
    set_conninfo(field, "host=elsewhere password=n0t-for-you")
    try:
        for sql in (everything, "select * from settings", "select * from pg_show_all_settings()"):
            for target in field.roles:
                failure = await field.refuse(target, sql)
                assert failure.code == "not_allowed"
                assert "primary_conninfo" in failure.message
                assert "n0t-for-you" not in failure.message
        assert await cell_of(field, "current_setting('work_mem')") == "4MB"
    finally:
        set_conninfo(field, "")


def set_conninfo(field: Field, value: str) -> None:
    """Have the server load a setting; it takes a moment."""
    field.watcher.execute(f"alter system set primary_conninfo = '{value}'".encode())
    field.watcher.execute("select pg_reload_conf()")
    deadline = Stopwatch()
    while field.watcher.execute("select current_setting('primary_conninfo')").fetchone() != (value,):
        assert deadline.seconds < 60


async def test_a_programs_own_secret_is_not_shown(field: Field) -> None:
    name = field.database
    field.watcher.execute(f"alter database {name} set app.jwt_secret = 'n0t-for-you'".encode())
    field.watcher.execute(f"alter database {name} set app.theme = 'dark'".encode())
    for target in field.roles:
        for sql in (
            "show app.jwt_secret",
            "select current_setting('app.jwt_secret')",
            "select * from pg_db_role_setting",
        ):
            failure = await field.refuse(target, sql)
            assert failure.code == "not_allowed"
        assert (await field.run(target, "show app.theme")).rows == (("dark",),)
        everything = await field.run(target, "select * from pg_settings", max_rows=1000)
        assert "n0t-for-you" not in str(everything.rows)


# -- who may ---------------------------------------------------------------------------------------


async def test_nothing_is_run_on_a_target_that_does_not_allow_it(field: Field) -> None:
    failure = await field.refuse(replace(field.reader, allow_sql=False), "select 1")
    assert failure.code == "not_allowed"
    assert "allow_sql = true in [targets.as_reader]" in failure.fix


async def test_every_postgres_tool_refuses_a_superuser_that_is_not_accepted(field: Field) -> None:
    cautious = replace(field.superuser, accept_risks=frozenset())
    failures = [await field.refuse(cautious, "select 1")]
    with pytest.raises(ToolFailed) as explained:
        await explain_statement(Targets([cautious]), CLOCK, sql="select 1")
    with pytest.raises(ToolFailed) as looked:
        await preflight(cautious)
    for failure in (*failures, explained.value, looked.value):
        assert failure.code == "dangerous_role"
        assert 'accept_risks = ["superuser"] in [targets.as_superuser]' in failure.fix
        assert "hermod targets grant as_superuser" in failure.fix


async def test_a_superuser_that_has_put_on_another_role_is_still_one(field: Field) -> None:
    role = await field.lab.create_role()
    options = {**field.superuser.options, "options": f"-c role={role}"}
    disguised = replace(field.superuser, accept_risks=frozenset(), options=options)
    with pytest.raises(ToolFailed) as caught:
        async with open_read_only(disguised):
            pass
    assert caught.value.code == "dangerous_role"


@pytest.mark.parametrize(
    ("member", "risk"),
    [
        ("pg_read_server_files", "file_privilege"),
        ("pg_write_server_files", "file_privilege"),
        ("pg_execute_server_program", "file_privilege"),
        ("pg_write_all_data", "write_privilege"),
    ],
)
async def test_a_role_that_reaches_further_than_tables_is_refused(
    field: Field, member: LiteralString, risk: str
) -> None:
    role = await field.lab.create_role(grant=member)
    target = field.lab.targets(field.database, role, allow_sql=True)["lab"]
    failure = await field.refuse(target, "select 1")
    assert failure.code == "dangerous_role"
    assert member in failure.message
    assert f'accept_risks = ["{risk}"]' in failure.fix
    accepted = replace(target, accept_risks=frozenset({risk}))
    assert (await field.run(accepted, "select 1")).rows == ((1,),)


async def test_an_accepted_superuser_is_mentioned_in_every_answer(field: Field) -> None:
    answer = await field.run(field.superuser, "select 1")
    assert any("superuser" in warning for warning in answer.warnings)


# -- the tool --------------------------------------------------------------------------------------


async def test_the_tool_answers_through_the_executor_without_known_secrets(field: Field) -> None:
    registry = ToolRegistry()
    register_readonly_sql_tools(registry, Targets([field.reader, field.superuser]), CLOCK)
    ctx = RunContext(
        run_id="r1",
        thread_id="t1",
        clock=CLOCK,
        deadline=CLOCK.monotonic() + 60,
        redactor=SecretRedactor(["kn0wn-secret-value"]),
    )
    arguments = {"sql": "select 'kn0wn-secret-value' as s, 'other' as o where 1 = $1", "params": [1]}
    call = ToolCall(id="c1", name="run_readonly_sql", arguments=json.dumps({**arguments, "target": "as_reader"}))
    result = await ToolExecutor(registry).run_one(ctx, call)
    assert result.ok, result.content
    answer = json.loads(result.content)
    assert answer["columns"] == ["s", "o"]
    assert answer["rows"][0][1] == "other"
    assert "kn0wn-secret-value" not in result.content
    call = ToolCall(id="c2", name="run_readonly_sql", arguments='{"sql": "select 1"}')
    refused = await ToolExecutor(registry).run_one(ctx, call)
    assert refused.error_code == "unknown_target"


async def test_an_answer_that_rests_on_rows_of_people_is_never_kept(field: Field) -> None:
    registry = ToolRegistry()
    register_readonly_sql_tools(registry, Targets([field.reader]), CLOCK)
    assert ToolExecutor(registry).cache_ttl_s("run_readonly_sql") is None
    assert not any(tool.trusted for tool in registry.tools())


# -- bugs of other tools ---------------------------------------------------------------------------


async def refused_for_both(field: Field, sql: str) -> None:
    field.remember()
    for target in field.roles:
        failure = await field.refuse(target, sql)
        assert failure.code in {"not_read_only", "multiple_statements", "not_allowed"}, failure.message
    field.check_untouched()


async def test_d14_a_function_in_from_reads_no_file(field: Field) -> None:
    """https://github.com/crystaldba/postgres-mcp/issues/178"""
    await refused_for_both(field, "select * from pg_read_file('/etc/passwd')")
    await refused_for_both(field, "select * from lab_acct, lateral pg_read_file('/etc/passwd') f")
    await refused_for_both(field, "select * from rows from (pg_ls_dir('/'), generate_series(1, 2)) as r")


async def test_d15_a_commit_inside_the_text_does_not_leave_the_read_only_transaction(field: Field) -> None:
    """https://github.com/pgadmin-org/pgadmin4/issues/10022 (CVE-2026-12045)"""
    await refused_for_both(field, "commit; insert into lab_acct values (77, 1); select 1")
    await refused_for_both(field, "rollback; begin; delete from lab_acct; commit; begin read only; select 1")


async def test_d16_a_comment_in_front_changes_nothing_about_what_runs(field: Field) -> None:
    """https://github.com/pgEdge/pgedge-postgres-mcp/pull/196"""
    await refused_for_both(field, "/* x */ set transaction read write")
    await refused_for_both(field, "-- x\nset session characteristics as transaction read write")
    await refused_for_both(field, "/* a */ select 1; /* b */ drop table lab_acct")


async def test_d17_a_write_behind_a_comment_is_no_read(field: Field) -> None:
    """https://github.com/ericzakariasson/pg-mcp-server/issues/3"""
    await refused_for_both(field, "-- select\ninsert into lab_acct values (78, 1)")
    await refused_for_both(field, "/* select 1 */ with x as (insert into lab_acct values (79, 1) returning 1) table x")


async def test_d18_an_honest_select_behind_a_comment_is_run(field: Field) -> None:
    """https://github.com/bytebase/dbhub/issues/80"""
    for target in field.roles:
        for sql in ("-- orders\nselect 1", "/* insert into x */ select 1", "select 1 -- drop table x"):
            assert (await field.run(target, sql)).rows == ((1,),)


async def test_d20_functions_that_write_without_a_table_are_refused(field: Field) -> None:
    """https://github.com/awslabs/mcp/pull/4575"""
    await refused_for_both(field, "select pg_stat_reset()")
    await refused_for_both(field, "select pg_logical_emit_message(true, 'x', 'y')")
    await refused_for_both(field, "select pg_stat_statements_reset()")


async def test_d21_functions_that_lock_wait_or_notify_are_refused(field: Field) -> None:
    """https://github.com/AgamiAI/agami-core/issues/395"""
    await refused_for_both(field, "select pg_advisory_lock(1)")
    await refused_for_both(field, "select pg_notify('c', 'x')")
    await refused_for_both(field, "select pg_sleep(0.1)")


async def test_the_granted_reader_alone_can_write_nothing(field: Field, tmp_path: Path) -> None:
    """The first layer, without any of the others."""
    async with field.lab.connect(field.database, field.reader.user) as connection:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await connection.execute("create temp table mine (a int)")
        await connection.execute("set default_transaction_read_only = off")  # it may take that lock off, not the others
        for sql in (
            "insert into lab_acct values (1000, 1)",
            "delete from lab_acct",
            "create table side.mine (a int)",
            f"copy (select 1) to '{tmp_path}/x'",
            "copy (select 1) to program 'true'",
            "select pg_read_file('/etc/passwd')",
            "table pg_authid",
            "select pg_stat_reset()",
            "alter system set work_mem = '4MB'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(sql.encode())
