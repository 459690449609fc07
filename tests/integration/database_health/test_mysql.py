"""The three tools on MariaDB. MySQL 8 is not run: what differs there is marked in the code, with the page."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import asdict, replace

from bot.tools.database_health import read_db_health, read_index_health, read_table_health
from bot.tools.database_health.answer import Check
from bot.tools.database_health.checks import HEALTH_BOUNDS, Bounds, CheckName, HealthBounds
from bot.tools.targets import Target
from tests.integration.database_health.conftest import CLOCK, until
from tests.servers.mariadb import MariaLab, mariadb

__all__ = ["mariadb"]

HEALTHY = (
    "create table customers (id bigint unsigned auto_increment primary key, email varchar(80) not null unique, "
    "town varchar(40), key customers_town (town))",
    "insert into customers (email, town) select concat('p', seq, '@example.org'), concat('town ', seq % 50) "
    "from seq_1_to_20000",
    "create table orders (id int auto_increment primary key, customer_id bigint unsigned not null, day int, note text, "
    "key orders_customer (customer_id), key orders_day (day, customer_id), fulltext key orders_note (note), "
    "foreign key (customer_id) references customers (id))",
    "insert into orders (customer_id, day, note) select 1 + seq % 20000, seq % 365, repeat('n ', 20) "
    "from seq_1_to_30000",
    "create table parts (id int, day int, primary key (id, day)) partition by range (day) "
    "(partition p0 values less than (100), partition p1 values less than maxvalue)",
    "insert into parts select seq, seq % 200 from seq_1_to_20000",
    "analyze table customers, orders, parts",
)
LOOKUPS = (
    "select count(*) from customers force index (customers_town) where town = 'town 7'",
    "select count(*) from orders force index (orders_customer) where customer_id = 7",
    "select count(*) from orders force index (orders_day) where day = 7",
)


async def setup(lab: MariaLab, *statements: str) -> tuple[str, Target]:
    """A database with these statements run in it, and a reader as the documentation advises."""
    database = await lab.create_database()
    async with lab.admin(database) as admin:
        for statement in statements:
            await admin.execute(statement)
    return database, lab.target(database, await lab.create_reader(database))


async def look(target: Target, name: CheckName, bounds: HealthBounds = HEALTH_BOUNDS) -> Check:
    """Run one check."""
    (row,) = (await read_db_health(target, CLOCK, checks=[name], bounds=bounds)).rows
    return row


async def test_nothing_is_invented_on_a_healthy_server(mariadb: MariaLab) -> None:
    database, target = await setup(mariadb, *HEALTHY, *LOOKUPS)
    async with mariadb.admin(database) as admin:
        await admin.execute(f"grant slave monitor on *.* to {target.user}@'%'")
        await admin.execute("create temporary table mine (a int, b int, key one (a), key two (a))")
        indexes = await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)
        tables = await read_table_health(target, CLOCK)
        health = await read_db_health(target, CLOCK)
    assert indexes.rows == ()
    assert indexes.examined == 8
    assert indexes.engine == "mariadb"
    assert indexes.coverage.complete, indexes.coverage
    assert sorted((row.table, row.findings) for row in tables.rows) == [
        (f"`{database}`.`customers`", ""),
        (f"`{database}`.`orders`", ""),
        (f"`{database}`.`parts`", ""),
    ]
    assert tables.coverage.complete
    assert {row.check: row.status for row in health.rows} == {
        "connections": "ok",
        "cache_hit": "ok",
        "replication": "ok",
        "long_transactions": "ok",
        "idle_in_transaction": "ok",
        "sequences": "ok",
        "objects": "ok",
        "history": "ok",
    }
    assert health.coverage.complete, health.coverage
    assert not any(row.advice or row.grant for row in health.rows)


async def test_duplicate_redundant_and_unused_indexes_are_found(mariadb: MariaLab) -> None:
    database, target = await setup(
        mariadb,
        "create table t (id int primary key, a int, b int, c varchar(50), key ka (a), key ka_again (a), "
        "key kab (a, b), "
        "key kb (b), key kb_also (b), unique key ub (b), key kc5 (c(5)), key kc9 (c(9)), unique key uid (id))",
        "insert into t select seq, seq, seq, 'x' from seq_1_to_100",
        "select * from t force index (kc5) where c = 'x'",
    )
    answer = await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)
    found = {row.index: (row.kind, row.covered_by) for row in answer.rows}
    twins = {name: found.pop(name) for name in ("`ka`", "`ka_again`")}
    # Which of the twins goes first is nobody's business.
    assert sorted(twins.values()) in (
        [("duplicate", "`ka`"), ("prefix_redundant", "`kab`")],
        [("duplicate", "`ka_again`"), ("prefix_redundant", "`kab`")],
    )
    assert found == {
        "`kb`": ("duplicate", "`ub`"),
        "`kb_also`": ("duplicate", "`ub`"),
        "`uid`": ("duplicate", "`PRIMARY`"),
        "`kab`": ("unused", None),
        "`kc9`": ("unused", None),
    }
    unused = {row.index: row for row in answer.rows if row.kind == "unused"}
    assert unused["`kc9`"].suggestion == f"ALTER TABLE `{database}`.`t` DROP INDEX `kc9`;"
    assert unused["`kc9`"].definition == "KEY `kc9` (`c`(9))"
    assert unused["`kab`"].suggestion is None
    young = await read_index_health(target, CLOCK, min_size_mb=0)
    assert not any(row.suggestion for row in young.rows if row.kind == "unused")
    async with mariadb.admin(database) as admin:
        for row in answer.rows:
            if row.suggestion is not None and row.kind != "unused":
                await admin.execute(row.suggestion)
    left = await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)
    assert {row.kind for row in left.rows} == {"unused"}


async def test_an_index_that_a_foreign_key_needs_is_not_called_unused(mariadb: MariaLab) -> None:
    _, target = await setup(
        mariadb,
        "create table parents (id int primary key, code int, key parents_code (code))",
        "create table children (id int primary key, parent int, code int, key by_parent (parent), key by_code (code), "
        "foreign key (parent) references parents (id), foreign key (code) references parents (code))",
    )
    answer = await read_index_health(target, CLOCK, min_size_mb=0, enough_s=0)
    assert answer.rows == ()


async def test_full_scans_of_a_large_table_and_free_room_are_told(mariadb: MariaLab) -> None:
    database, target = await setup(
        mariadb,
        "create table big (id int primary key, a int, filler varchar(400))",
        "insert into big select seq, seq % 500, repeat('x', 400) from seq_1_to_100000",
        "analyze table big",
        *["select count(*) from big where a = 7"] * 15,
    )
    (row,) = (await read_table_health(target, CLOCK)).rows
    assert "sequential scans" in row.findings
    assert "an index may be missing" in row.findings
    assert row.storage_engine == "InnoDB"
    async with mariadb.admin(database) as admin:
        await admin.execute("delete from big where id > 1000")

        async def purged() -> bool:
            await admin.execute("analyze table big")
            (row,) = (await read_table_health(target, CLOCK)).rows
            return "are free (DATA_FREE)" in row.findings

        await until(purged, within_s=60)
    (row,) = (await read_table_health(target, CLOCK)).rows
    assert row.bloat_method == "data_free"
    assert f"OPTIMIZE TABLE `{database}`.`big`" in row.findings


async def test_auto_increment_near_its_end_is_found_by_both_tools(mariadb: MariaLab) -> None:
    database, target = await setup(
        mariadb,
        "create table small (id tinyint unsigned auto_increment primary key) auto_increment = 240",
        "create table fine (id int auto_increment primary key)",
        "insert into small values (null)",
    )
    row = await look(target, "sequences")
    assert row.status == "critical"
    assert row.items == (f"`{database}`.`small`.`id` (tinyint(3) unsigned) is at 241 of 255 (94 %)",)
    rows = {row.table: row for row in (await read_table_health(target, CLOCK)).rows}
    assert "AUTO_INCREMENT of `id` (tinyint(3) unsigned) is at 241 of 255" in rows[f"`{database}`.`small`"].findings
    assert rows[f"`{database}`.`fine`"].findings == ""


async def test_a_connection_storm_is_found_with_who_connects(mariadb: MariaLab) -> None:
    database, target = await setup(mariadb)
    app = await mariadb.create_role(f"all privileges on {database}.*")
    async with AsyncExitStack() as stack:
        for _ in range(50):
            await stack.enter_async_context(mariadb.connect(database, app))
        row = await look(target, "connections")
        assert row.status in ("warn", "critical")
        assert row.items[0] == f"50 of {app} in `{database}`: Sleep"
        assert "of 60 connections" in row.evidence


async def test_a_session_asleep_in_a_transaction_is_found_and_worse_when_others_wait(mariadb: MariaLab) -> None:
    database, target = await setup(mariadb, "create table t (id int primary key, n int)", "insert into t values (1, 1)")
    bounds = replace(HEALTH_BOUNDS, idle_s=Bounds(warn=1, critical=3600), transaction_s=Bounds(warn=1, critical=3600))
    async with mariadb.admin(database) as idle, mariadb.admin(database) as waiter:
        await idle.execute("begin")
        await idle.execute("update t set n = 2")
        waiting = asyncio.create_task(waiter.execute("update t set n = 3"))
        row = await look(target, "idle_in_transaction")

        async def waits() -> bool:
            nonlocal row
            row = await look(target, "idle_in_transaction")
            return "1 transaction waiting for them" in row.evidence

        await until(waits)
        assert row.status == "warn"
        assert "1 row changed, 1 waiting for it" in row.items[0]

        async def old() -> bool:
            nonlocal row
            row = await look(target, "long_transactions", bounds)
            return row.status == "warn"

        await until(old)
        assert "connection " in row.items[0]
        await idle.execute("commit")
        await waiting

    async def ended() -> bool:
        return (await look(target, "idle_in_transaction")).evidence == "no session sleeps in a transaction"

    await until(ended)  # InnoDB refreshes what it tells of transactions ten times a second at most


async def test_tables_in_engines_that_lose_rows_are_found(mariadb: MariaLab) -> None:
    database, target = await setup(
        mariadb,
        "create table old_style (a int, filler char(200)) engine = MyISAM",
        "insert into old_style select seq, 'x' from seq_1_to_10000",
    )
    row = await look(target, "objects")
    assert row.status == "warn"
    assert row.items[0].startswith(f"`{database}`.`old_style`: MyISAM, ")
    (facts,) = (await read_table_health(target, CLOCK)).rows
    assert "MyISAM knows no transactions" in facts.findings


async def test_an_account_without_rights_gets_the_exact_grants_and_no_false_health(mariadb: MariaLab) -> None:
    database, _ = await setup(mariadb, "create table t (id tinyint auto_increment primary key) auto_increment = 120")
    plain = await mariadb.create_role()
    async with mariadb.admin() as admin:
        await admin.execute(f"grant show view on {database}.* to {plain}@'%'")
        target = mariadb.target(database, plain)
        answer = await read_db_health(target, CLOCK)
        rows = {row.check: row for row in answer.rows}
        account = f"'{plain}'@'%'"
        assert rows["long_transactions"].grant == f"GRANT PROCESS ON *.* TO {account};"
        assert rows["replication"].grant == f"GRANT SLAVE MONITOR ON *.* TO {account};"
        assert rows["history"].status == "ok"
        assert {name for name, row in rows.items() if row.status == "unknown"} == {
            "long_transactions",
            "idle_in_transaction",
            "replication",
        }
        indexes = await read_index_health(target, CLOCK)
        assert f"GRANT SELECT ON performance_schema.* TO {account};" in indexes.coverage.reasons[0]
        for row in answer.rows:
            if row.grant:
                await admin.execute(row.grant)
        await admin.execute(f"grant select on performance_schema.* to {plain}@'%'")
        again = await read_db_health(target, CLOCK)
    assert [row.check for row in again.rows if row.status == "unknown"] == []
    assert mariadb.passwords[plain] not in json.dumps([asdict(answer), asdict(again)])


async def test_tables_that_the_account_may_not_see_are_told(mariadb: MariaLab) -> None:
    database, _ = await setup(
        mariadb,
        "create table seen (id int primary key)",
        "create table hidden (id tinyint auto_increment primary key) auto_increment = 120",
    )
    role = await mariadb.create_role("process on *.*", f"select on {database}.seen")
    target = mariadb.target(database, role)
    row = await look(target, "sequences")
    assert row.status == "unknown"
    assert row.evidence == "1 table not visible to this account"
    assert row.grant == f"GRANT SELECT ON `{database}`.* TO '{role}'@'%';"
    tables = await read_table_health(target, CLOCK)
    assert any("1 table not visible" in reason for reason in tables.coverage.reasons)
