"""What ``preflight`` says of live Postgres servers, from complete to bare."""

from __future__ import annotations

import pytest

from agent_core.tools.results import render_value
from bot.tools.activity.answer import Check, Preflight
from bot.tools.activity.preflight import read_preflight
from bot.tools.targets import Target, Targets
from reading.layout import render_result
from tests.integration.activity.conftest import CLOCK, Yard
from tests.servers.pgbouncer import run_pooler
from tests.servers.postgres import Lab


async def look(targets: Targets) -> Preflight:
    return await read_preflight(targets, CLOCK)


def check(answer: Preflight, name: str) -> Check:
    (found,) = [row for row in answer.rows if row.name == name]
    return found


async def test_a_reader_as_the_documentation_advises_misses_nothing_that_the_tools_need(yard: Yard) -> None:
    answer = await look(yard.lab.targets(yard.database, yard.reader))
    assert [row.name for row in answer.rows if row.status == "missing"] == []
    assert check(answer, "other sessions").status == "ok"
    assert check(answer, "pg_stat_statements").status == "ok"
    assert check(answer, "role").value == "no dangerous rights"
    assert (answer.account, answer.server_role, answer.pooler) == (yard.reader, "primary", False)
    assert answer.statements_since is not None
    assert check(answer, "track_io_timing").status == "warning"
    assert "ALTER SYSTEM SET track_io_timing = on; SELECT pg_reload_conf(); -- track_io_timing" in answer.to_run
    text = render_value(answer)
    assert "track\\_io\\_timing" in render_result(text, {}) or "track_io_timing" in render_result(text, {})
    assert all(secret not in text for secret in (*yard.lab.passwords.values(), str(yard.lab.server.folder)))


async def test_the_lines_that_it_gives_mend_what_is_missing(yard: Yard) -> None:
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute("drop extension pg_stat_statements")
        await admin.execute("revoke all on acct from public")
    blind = await yard.lab.create_role()
    targets = yard.lab.targets(yard.database, blind)
    before = await look(targets)
    assert {row.name for row in before.rows if row.status == "missing"} == {"other sessions", "pg_stat_statements"}
    assert check(before, "pg_stat_statements").value == "extension_missing"
    assert check(before, "tables").value == "0 of 1 readable"
    mend = [line for line in before.to_run if line.startswith(("GRANT", "CREATE EXTENSION pg_stat_statements"))]
    assert len(mend) == 3
    async with yard.lab.admin(yard.database) as admin:
        for line in mend:
            await admin.execute(line.replace("(in database", "-- (in database").encode())
    after = await look(targets)
    assert [row.name for row in after.rows if row.status == "missing"] == []
    assert check(after, "tables").value == "1 of 1 readable"


async def test_where_everything_is_missing_it_still_answers(bare_postgres: Lab) -> None:
    database, role = await bare_postgres.create_database(extension=False), await bare_postgres.create_role()
    answer = await look(bare_postgres.targets(database, role))
    assert answer.ok
    assert {row.name for row in answer.rows if row.status == "missing"} == {"other sessions", "pg_stat_statements"}
    assert any("shared_preload_libraries" in line for line in answer.to_run)
    assert f"GRANT pg_monitor TO {role}; -- other sessions" in answer.to_run
    assert answer.statements_since is None


async def test_an_extension_that_was_not_preloaded_is_told(bare_postgres: Lab) -> None:
    database, role = await bare_postgres.create_database(), await bare_postgres.create_reader()
    answer = await look(bare_postgres.targets(database, role))
    assert check(answer, "pg_stat_statements").value == "not_preloaded"


async def test_d04_an_extension_older_than_the_server_is_told_with_the_update(yard: Yard) -> None:
    """A new server keeps the old extension; https://github.com/lesovsky/pgcenter/issues/98."""
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute("drop extension pg_stat_statements")
        await admin.execute("create extension pg_stat_statements version '1.8'")
    answer = await look(yard.lab.targets(yard.database, yard.reader))
    row = check(answer, "pg_stat_statements")
    assert (row.status, row.value) == ("warning", "1.8")
    assert "ALTER EXTENSION pg_stat_statements UPDATE; -- pg_stat_statements" in answer.to_run


async def test_statistics_that_the_role_may_not_read_are_told_and_do_not_end_the_answer(yard: Yard) -> None:
    async with yard.lab.admin(yard.database) as admin:
        await admin.execute("revoke execute on function pg_stat_statements(boolean) from public")
    answer = await look(yard.lab.targets(yard.database, yard.reader))
    row = check(answer, "pg_stat_statements")
    assert row.status == "missing"
    assert any("GRANT EXECUTE ON FUNCTION" in line and yard.reader in line for line in answer.to_run)


async def test_rights_beyond_reading_are_named_with_the_lines_that_take_them_away(yard: Yard) -> None:
    role = await yard.lab.create_role("createdb createrole", grant="pg_read_server_files")
    answer = await look(yard.lab.targets(yard.database, role))
    assert check(answer, "role").value == "createrole, createdb, pg_read_server_files"
    assert f"REVOKE pg_read_server_files FROM {role}; -- role" in answer.to_run
    assert f"ALTER ROLE {role} NOCREATEDB; -- role" in answer.to_run


async def test_an_accepted_superuser_is_warned_of(any_postgres: Lab) -> None:
    database, role = await any_postgres.create_database(), await any_postgres.create_role("superuser")
    target = Target.from_url("lab", any_postgres.url(database, role), accept_risks=["superuser"])
    answer = await look(Targets([target]))
    assert (check(answer, "role").status, check(answer, "role").value) == ("warning", "superuser")


@pytest.mark.service("pgbouncer")
async def test_a_pooler_in_between_is_found(any_postgres: Lab) -> None:
    database, reader = await any_postgres.create_database(), await any_postgres.create_reader()
    with run_pooler(any_postgres) as pooler:
        answer = await look(pooler.targets(database, reader))
    assert answer.pooler is True
    assert check(answer, "pooler").value == "yes"
