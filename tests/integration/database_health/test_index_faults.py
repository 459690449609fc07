"""``index_health`` on databases with something wrong in them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import LiteralString

import psycopg
import pytest

from bot.tools.database_health import read_index_health
from bot.tools.database_health.answer import IndexFinding
from tests.integration.database_health.conftest import CLOCK, target_of, until
from tests.servers.postgres import Lab

DAY_S = 86_400.0


async def find(lab: Lab, setup: LiteralString, *, enough_s: float = 0.0, role: str | None = None) -> list[IndexFinding]:
    """Set a new database up and look at all its indexes."""
    database = await lab.create_database()
    async with lab.admin(database) as admin:
        await admin.execute(setup)
    reader = role or await lab.create_reader()
    answer = await read_index_health(target_of(lab, database, reader), CLOCK, min_size_mb=0, enough_s=enough_s)
    return list(answer.rows)


def named(rows: list[IndexFinding], kind: str) -> dict[str, str | None]:
    """What of one kind was found, with what covers it."""
    return {row.index: row.covered_by for row in rows if row.kind == kind}


async def test_duplicate_and_prefix_indexes_are_found_with_what_covers_them(postgres: Lab) -> None:
    rows = await find(
        postgres,
        """create table orders (id int primary key, customer_id int, day date);
        create index orders_customer on orders (customer_id);
        create index orders_customer_again on orders (customer_id);
        create index orders_day on orders (day);
        create index orders_day_customer on orders (day, customer_id);
        create unique index orders_id on orders (id)""",
    )
    assert named(rows, "duplicate") == {
        "public.orders_customer_again": "public.orders_customer",
        "public.orders_id": "public.orders_pkey",
    }
    assert named(rows, "prefix_redundant") == {"public.orders_day": "public.orders_day_customer"}
    again = next(row for row in rows if row.index == "public.orders_customer_again")
    assert again.suggestion == "DROP INDEX CONCURRENTLY public.orders_customer_again;"
    assert "has the same columns" in again.finding


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("create index one on t (a)", "create index two on t (b)"),
        ("create index one on t (a, b)", "create index two on t (b, a)"),
        ("create index one on t (lower(c))", "create index two on t (upper(c))"),
        ("create index one on t (c)", "create index two on t (lower(c))"),
        ("create index one on t (a) where b > 1", "create index two on t (a) where b > 2"),
        ("create index one on t (a) where b > 1", "create index two on t (a)"),
        ("create index one on t (c)", "create index two on t (c text_pattern_ops)"),
        ('create index one on t (c collate "C")', 'create index two on t (c collate "POSIX")'),
        ("create index one on t (a)", "create index two on t (a desc)"),
        ("create index one on t (a nulls first)", "create index two on t (a)"),
        ("create index one on t (a)", "create index two on t (a) include (b)"),
        ("create index one on t (a) include (b)", "create index two on t (a) include (c)"),
        ("create index one on t (a) include (c)", "create index two on t (a, b)"),
        ("create index one on t (a)", "create index two on t using hash (a)"),
        ("create index one on t using gin (d)", "create index two on t using gin (d jsonb_path_ops)"),
        ("create unique index one on t (a)", "create unique index two on t (a, b)"),
        ("create unique index one on t (a) where b = 1", "create unique index two on t (a) where b = 2"),
        (
            "alter table t add constraint one unique (a) deferrable initially deferred",
            "create unique index two on t (a)",
        ),
    ],
)
async def test_indexes_that_differ_in_anything_are_no_duplicates(
    any_postgres: Lab, first: LiteralString, second: LiteralString
) -> None:
    rows = await find(any_postgres, "create table t (a int, b int, c text, d jsonb); " + first + ";" + second)
    assert {row.kind for row in rows} <= {"unused"}


async def test_a_unique_index_stands_in_for_a_plain_one_but_never_the_other_way_round(any_postgres: Lab) -> None:
    rows = await find(
        any_postgres,
        "create table t (a int, b int); create unique index only_one on t (a); create index plain on t (a);"
        "create unique index nulls_too on t (b) nulls not distinct; create unique index nulls_apart on t (b)",
    )
    assert named(rows, "duplicate") == {"public.plain": "public.only_one"}


async def test_d39_indexes_behind_constraints_are_never_called_unused(postgres: Lab) -> None:
    """https://github.com/OPMDG/check_pgactivity/pull/420: the list of unused indexes held primary keys."""
    rows = await find(
        postgres,
        """create extension if not exists btree_gist;
        create table parents (id int primary key, code text unique, other int);
        create table rooms (room int, during int4range, exclude using gist (room with =, during with &&));
        create unique index parents_other on parents (other);
        create table named (id int not null, word text); create unique index named_id on named (id);
        alter table named replica identity using index named_id;
        create index named_word on named (word)""",
        enough_s=0,
    )
    assert [(row.kind, row.index) for row in rows] == [("unused", "public.named_word")]
    assert rows[0].backs_constraint is False
    assert rows[0].suggestion == "DROP INDEX CONCURRENTLY public.named_word;"


async def test_young_counters_are_told_and_nothing_is_suggested_on_their_ground(postgres: Lab) -> None:
    setup: LiteralString = "create table t (a int); create index lonely on t (a)"
    (row,) = await find(postgres, setup, enough_s=7 * DAY_S)
    assert row.kind == "unused"
    assert row.suggestion is None
    assert "too short to call it unused" in row.finding
    (row,) = await find(postgres, setup, enough_s=0)
    assert row.suggestion == "DROP INDEX CONCURRENTLY public.lonely;"
    assert row.scans == 0
    assert any("standby" in note for note in row.notes)


async def test_a_scanned_index_is_not_unused(postgres: Lab) -> None:
    database = await postgres.create_database()
    reader = await postgres.create_reader()
    target = target_of(postgres, database, reader)
    async with postgres.admin(database) as admin:
        await admin.execute("create table t (a int); create index used on t (a); create index idle on t ((a + 1))")
        await admin.execute("set enable_seqscan = off")
        await admin.execute("select * from t where a = 1")

    async def counted() -> bool:
        rows = (await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)).rows
        return [row.index for row in rows] == ["public.idle"]

    await until(counted)


async def test_an_index_that_serves_a_foreign_key_or_stands_in_for_another_one_says_so(any_postgres: Lab) -> None:
    rows = await find(
        any_postgres,
        """create table parents (id int primary key);
        create table children (parent_id int references parents, day int);
        create index children_parent on children (parent_id);
        create index children_parent_day on children (parent_id, day)""",
    )
    assert named(rows, "prefix_redundant") == {"public.children_parent": "public.children_parent_day"}
    wide = next(row for row in rows if row.kind == "unused")
    assert wide.suggestion is None
    assert any("children_parent_id_fkey" in note for note in wide.notes)
    assert any("drop one of them, not both" in note for note in wide.notes)


async def test_an_index_left_invalid_by_a_broken_build_is_found_however_small(postgres: Lab) -> None:
    database = await postgres.create_database()
    reader = await postgres.create_reader()
    async with postgres.admin(database) as admin:
        await admin.execute("create table t (a int); insert into t values (1), (1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await admin.execute("create unique index concurrently broken on t (a)")
    answer = await read_index_health(target_of(postgres, database, reader), CLOCK, min_size_mb=100)
    (row,) = answer.rows
    assert (row.kind, row.index) == ("invalid", "public.broken")
    assert row.suggestion == "DROP INDEX CONCURRENTLY public.broken;"
    assert "REINDEX INDEX CONCURRENTLY public.broken;" in row.notes[0]
    assert "does not guarantee that values are unique" in row.notes[1]


@pytest.mark.parametrize("monitor", [True, False])
async def test_an_index_that_is_being_built_is_not_called_invalid(postgres: Lab, monitor: bool) -> None:
    database = await postgres.create_database()
    role = await postgres.create_reader() if monitor else await postgres.create_role()
    target = target_of(postgres, database, role)
    async with postgres.admin(database) as admin, postgres.admin(database) as builder, postgres.admin(database) as old:
        await admin.execute("create table t (a int)")
        # Building waits for transactions that hold the table: so it stays in the middle as long as we like.
        await old.execute("begin; insert into t values (1)")
        building = asyncio.create_task(builder.execute("create index concurrently slowly on t (a)"))

        async def begun() -> bool:
            query = "select from pg_index where indexrelid = to_regclass('slowly') and not indisvalid"
            return await (await admin.execute(query)).fetchone() is not None

        await until(begun)
        answer = await read_index_health(target, CLOCK, min_size_mb=0)
        await old.execute("commit")
        await building
    assert answer.rows == ()
    assert answer.warnings == (
        "public.slowly is not valid yet; a session seems to be building it just now. Ask again when it is done",
    )


async def test_partitioned_indexes_are_judged_as_a_whole(postgres: Lab) -> None:
    rows = await find(
        postgres,
        """create table p (id int, day int) partition by range (day);
        create table p_1 partition of p for values from (0) to (10);
        create table p_2 partition of p for values from (10) to (20);
        insert into p select g, g % 20 from generate_series(1, 4000) g;
        create index p_id on p (id); create index p_id_again on p (id);
        create index p_1_own on p_1 (id)""",
    )
    assert named(rows, "duplicate") == {"public.p_id_again": "public.p_id", "public.p_1_own": "public.p_1_id_idx"}
    again = next(row for row in rows if row.index == "public.p_id_again")
    assert again.suggestion == "DROP INDEX public.p_id_again;"
    assert any("cannot be dropped CONCURRENTLY" in note for note in again.notes)
    assert again.size_bytes > 2 * 8192
    assert named(rows, "unused") == {"public.p_id": None}


async def test_a_partitioned_index_that_lacks_a_part_is_invalid_with_what_mends_it(any_postgres: Lab) -> None:
    rows = await find(
        any_postgres,
        """create table p (id int) partition by range (id);
        create table p_1 partition of p for values from (0) to (10);
        create index p_id on only p (id)""",
    )
    (row,) = rows
    assert (row.kind, row.index) == ("invalid", "public.p_id")
    assert row.suggestion is not None
    assert "ATTACH PARTITION" in row.suggestion


async def test_names_are_quoted_and_literals_stay_in_the_database(any_postgres: Lab) -> None:
    rows = await find(
        any_postgres,
        """create schema "My Schema"; create table "My Schema"."select" ("order" text, b int);
        create index "Odd "" name" on "My Schema"."select" ("order") where "order" <> 'hunter2';
        create index "user" on "My Schema"."select" ("order") where "order" <> 'hunter2'""",
    )
    assert named(rows, "duplicate") == {'"My Schema"."user"': '"My Schema"."Odd "" name"'}
    assert rows[0].table == '"My Schema"."select"'
    assert rows[0].suggestion == 'DROP INDEX CONCURRENTLY "My Schema"."user";'
    assert "hunter2" not in json.dumps([asdict(row) for row in rows])


async def test_suggestions_run_as_they_are(any_postgres: Lab) -> None:
    """A person can take each line as it is: they are tried here, on a database of our own."""
    database = await any_postgres.create_database()
    reader = await any_postgres.create_reader()
    target = target_of(any_postgres, database, reader)
    async with any_postgres.admin(database) as admin:
        await admin.execute(
            """create table "T" (a int primary key, b int); create index on "T" (b);
            alter table "T" add constraint same unique (a);
            create index on "T" (b); create index "x y" on "T" ((b + 1));
            create table p (id int) partition by range (id); create index p_id on p (id); create index p_2 on p (id)"""
        )
        rows = (await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)).rows
        lines = [row.suggestion for row in rows if row.suggestion is not None]
        assert len(lines) == 4
        assert 'ALTER TABLE public."T" DROP CONSTRAINT same;' in lines
        for line in lines:
            await admin.execute(line.encode())
        left = (await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)).rows
    assert {row.kind for row in left} == {"unused"}


async def test_small_indexes_are_counted_and_not_listed(any_postgres: Lab) -> None:
    database = await any_postgres.create_database()
    async with any_postgres.admin(database) as admin:
        await admin.execute("create table t (a int, b int); create index on t (a); create index on t (b)")
    reader = await any_postgres.create_reader()
    answer = await read_index_health(target_of(any_postgres, database, reader), CLOCK, enough_s=0)
    assert answer.rows == ()
    assert answer.warnings == ("2 more below 1 MiB left out; min_size_mb=0 lists them",)


async def test_a_table_that_a_session_has_for_itself_costs_the_others_nothing(postgres: Lab) -> None:
    database = await postgres.create_database()
    reader = await postgres.create_reader()
    async with postgres.admin(database) as admin:
        await admin.execute("create table busy (a int); create index on busy (a); create index on busy (a)")
        await admin.execute("create table t (a int); create index one on t (a); create index two on t (a)")
        await admin.execute("begin; lock table busy in access exclusive mode")
        answer = await read_index_health(target_of(postgres, database, reader), CLOCK, min_size_mb=0)
    assert named(list(answer.rows), "duplicate") == {"public.two": "public.one"}
    assert answer.coverage.reasons == ("a session has public.busy for itself, so that it could not be looked at",)
    assert not answer.coverage.complete
