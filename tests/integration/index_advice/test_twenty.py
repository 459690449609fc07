"""Twenty queries: what is advised is built for real, and has to do what was said of it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.rows import TupleRow

from agent_core.context import SystemClock
from bot.tools.index_advice.advise import advise
from bot.tools.index_advice.answer import IndexAdvice, IndexReport
from bot.tools.index_advice.choose import Limits
from bot.tools.index_advice.scratch import ScratchLimits
from bot.tools.index_advice.statements import Asked, Statement
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from tests.integration.index_advice.conftest import open_warehouse
from tests.integration.index_advice.twenty import CASES, Case
from tests.servers.postgres import Lab

CLOCK = SystemClock()
Admin = psycopg.AsyncConnection[TupleRow]
every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """What a query costs, and how long it takes at best (of three), on the server itself."""

    cost: float
    seconds: float


async def look(admin: Admin, sql: str) -> Real:
    cost, times = 0.0, []
    for _ in range(3):
        cursor = await admin.execute(f"explain (analyze, format json) {sql}".encode())
        row = await cursor.fetchone()
        assert row is not None
        body = json.loads(row[0]) if isinstance(row[0], str) else row[0]
        cost = body[0]["Plan"]["Total Cost"]
        times.append(body[0]["Execution Time"] / 1000)
    return Real(cost=cost, seconds=min(times))


async def build(admin: Admin, rows: tuple[IndexAdvice, ...]) -> list[str]:
    """Build what was advised, as it was advised; returns the names."""
    for row in rows:
        await admin.execute(row.ddl.encode())
    return [row.ddl.split()[3] for row in rows]


async def check_case(lab: Lab, database: str, case: Case, report: IndexReport) -> None:
    shape = fingerprint_sql(case.sql)
    rows = tuple(row for row in report.rows if shape in {query.fingerprint for query in row.queries})
    async with lab.admin(database) as admin:
        before = await look(admin, case.sql)
        if not case.helped:
            assert not rows
            assert [one.reason for one in report.no_advice if one.fingerprint == shape]
            if case.plausible:
                await admin.execute(f"create index plausible on {case.plausible}".encode())
                try:
                    assert (await look(admin, case.sql)).cost > before.cost * 0.5
                finally:
                    await admin.execute("drop index plausible")
            return
        assert rows, report.no_advice
        assert any(case.keys in row.ddl for row in rows)
        names = await build(admin, rows)
        try:
            after = await look(admin, case.sql)
        finally:
            for name in names:
                await admin.execute(f"drop index {name}".encode())
    for row in rows:
        for query in row.queries:
            if query.fingerprint != shape:
                continue
            assert query.cost_saved is not None
            assert query.cost_saved >= 0.5
            assert query.cost_after is not None
            assert query.cost_after < query.cost_before
            if query.measured_after_s is not None:
                assert query.measured_before_s is not None
                assert query.measured_after_s < query.measured_before_s
    assert after.cost <= before.cost * 0.5
    assert after.seconds < before.seconds


@every_case
async def test_what_hypopg_promises_a_real_index_keeps(hypopg_postgres: Lab, case: Case) -> None:
    database, target = await open_warehouse(hypopg_postgres, hypopg=True)
    report = await advise(target, CLOCK, Asked(statements=(Statement(sql=case.sql),)), Limits(), scratch=None)
    assert {row.verified_by for row in report.rows} <= {"hypopg"}
    await check_case(hypopg_postgres, database, case, report)


_reports: list[IndexReport] = []


async def report_by_copy(lab: Lab) -> IndexReport:
    """All twenty at once, on one copy."""
    if not _reports:
        _, target = await open_warehouse(lab, hypopg=False)
        asked = Asked(statements=tuple(Statement(sql=case.sql) for case in CASES))
        _reports.append(await advise(target, CLOCK, asked, Limits(max_indexes=20), scratch=ScratchLimits()))
    return _reports[0]


@every_case
async def test_what_the_copy_promises_a_real_index_keeps(plain_postgres: Lab, case: Case) -> None:
    database, _ = await open_warehouse(plain_postgres, hypopg=False)
    report = await report_by_copy(plain_postgres)
    assert {row.verified_by for row in report.rows} == {"scratch_copy"}
    if case.helped:
        mine = [q for row in report.rows for q in row.queries if q.fingerprint == fingerprint_sql(case.sql)]
        assert all(query.measured_after_s is not None for query in mine)
    await check_case(plain_postgres, database, case, report)


async def test_of_twenty_queries_no_advice_repeats_an_index_that_exists_or_another_advice(plain_postgres: Lab) -> None:
    database, _ = await open_warehouse(plain_postgres, hypopg=False)
    report = await report_by_copy(plain_postgres)
    async with plain_postgres.admin(database) as admin:
        cursor = await admin.execute("select indexdef from pg_indexes where schemaname = 'public'")
        existing = [str(row[0]) for row in await cursor.fetchall()]
    heads = [ddl.split(" ON ", 1)[1].replace(" USING btree", "").rstrip(";)") for ddl in existing]
    advised = [row.ddl.split(" ON ", 1)[1].rstrip(";)") for row in report.rows]
    assert len(set(advised)) == len(advised)
    for mine in (one for one in advised if " WHERE " not in one):
        assert not any(other.startswith(mine) for other in heads)
        assert sum(other.startswith(mine) for other in advised if " WHERE " not in other) == 1
    assert len(advised) == sum(case.helped for case in CASES)
