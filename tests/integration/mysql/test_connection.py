"""The guards of a connection to MySQL and MariaDB, on a real MariaDB."""

from __future__ import annotations

import pytest

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import open_mysql
from tests.servers.mariadb import MariaLab


async def test_rows_come_by_column_name_and_parameters_are_values(mariadb: MariaLab) -> None:
    database = await mariadb.create_database()
    role = await mariadb.create_reader(database)
    async with open_mysql(mariadb.target(database, role)) as db:
        assert (db.flavor, db.version_num[:2]) == ("mariadb", (10, 11))
        rows = await db.fetch("select %s as a, %s as b, database() as c", ["o'x%s\\", None])
        assert rows == [{"a": "o'x%s\\", "b": None, "c": database}]
        assert await db.fetch_one("select 1 from dual where 1 = 0") is None


async def test_two_statements_in_one_message_are_refused(mariadb: MariaLab) -> None:
    role = await mariadb.create_reader()
    async with open_mysql(mariadb.target("", role)) as db:
        with pytest.raises(ToolFailed) as caught:
            await db.fetch("select 1; select 2")
        assert caught.value.code == "parse_failed"
