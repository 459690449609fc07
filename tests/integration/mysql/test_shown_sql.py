"""``echo_sql`` on MariaDB: our queries word for word, and what was passed in without its literals."""

from __future__ import annotations

from bot.tools.mysql.connection import open_mysql
from bot.tools.shown_sql import record_sql
from tests.servers.mariadb import MariaLab


async def test_queries_are_noted_as_sent_and_what_was_passed_in_without_literals(mariadb: MariaLab) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    target = mariadb.targets(database, role)["lab"]
    with record_sql() as noted:
        async with open_mysql(target) as db:
            await db.fetch("select %s as one", [41])
            await db.fetch("select 's3cr3t' as two", own=False)
            await db.fetch_capped("select 's3cr3t' as three", most_rows=1, most_bytes=1000)
    assert "select %s as one\n-- with 41" in noted
    assert noted[-2:] == ["select ? as two", "select ? as three"]
    assert not any("s3cr3t" in text for text in noted)
