"""A MariaDB with data, honest and dishonest functions, and what it holds as values to compare."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_core.context import SystemClock
from bot.tools.readonly_sql.answer import Parameter, SqlRequest, SqlRows
from bot.tools.readonly_sql.mysql import run_on_mysql
from bot.tools.targets import Target
from tests.integration.readonly_sql.mysql_schema import SCHEMA
from tests.servers.mariadb import MariaLab, Session

# Counters and clocks of the server itself.
_MOVING = frozenset({"gtid_binlog_pos", "gtid_binlog_state", "gtid_current_pos", "timestamp", "last_gtid"})
_SCHEMA_QUERIES = (
    "select * from information_schema.columns where table_schema in ('{db}', 'mysql') order by 2, 3, 5",
    "select table_schema, table_name, table_type, engine from information_schema.tables"
    " where table_schema not in ('information_schema', 'performance_schema') order by 1, 2",
    "select * from information_schema.views where table_schema = '{db}' order by table_name",
    "select routine_schema, routine_name, routine_definition from information_schema.routines order by 1, 2",
    "select * from information_schema.statistics where table_schema = '{db}' order by 3, 6, 7",
    "select schema_name from information_schema.schemata order by 1",
    "select * from mysql.global_priv order by 1, 2",
    "select * from mysql.db order by 1, 2, 3",
    "select next_not_cached_value from {db}.numbers",
    "select is_free_lock('hermod')",
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A database made of ``SCHEMA``, to be read with root's rights or with a reader's.

    Args:
        lab: the server.
        database: its name there.
        root, reader: targets for it.
    """

    lab: MariaLab
    database: str
    root: Target
    reader: Target

    def spell(self, statement: str) -> str:
        """The statement with this place's names in it."""
        return statement.replace("{db}", self.database).replace("{dir}", str(self.lab.server.folder))

    async def run(
        self,
        statement: str,
        *parameters: Parameter,
        root: bool = False,
        timeout_s: float = 2.0,
        max_rows: int = 50,
    ) -> SqlRows:
        """Run a statement as the tool does."""
        request = SqlRequest(sql=self.spell(statement), parameters=parameters, timeout_s=timeout_s, max_rows=max_rows)
        return await run_on_mysql(self.root if root else self.reader, SystemClock(), request)


async def make_place(lab: MariaLab) -> Place:
    """Make the database and a reader who may see the bodies of functions."""
    database = await lab.create_database()
    async with lab.admin(database) as admin:
        await fill(admin, database, Path(lab.server.folder))
    reader = await lab.create_reader(database)
    async with lab.admin() as admin:
        for schema in (database, "sys"):
            await admin.execute(f"grant execute on {schema}.* to {reader}@'%'")
        for table in ("proc", "innodb_table_stats"):
            await admin.execute(f"grant select on mysql.{table} to {reader}@'%'")
    risks = ("superuser", "file_privilege")
    return Place(
        lab=lab,
        database=database,
        root=lab.target(database, "root", accept_risks=risks),
        reader=lab.target(database, reader),
    )


async def fill(admin: Session, database: str, folder: Path) -> None:
    """Make the tables, views and functions of ``SCHEMA``."""
    await admin.execute("set session check_constraint_checks = 1")
    for statement in SCHEMA:
        await admin.execute(statement.replace("{db}", database).replace("{dir}", str(folder)))


async def read_state(lab: MariaLab, admin: Session, database: str) -> Mapping[str, str]:
    """Everything that a statement could have changed, by what it is."""
    state: dict[str, str] = {}
    tables = await admin.execute(
        "select table_schema, table_name from information_schema.tables where table_type in ('BASE TABLE', 'SEQUENCE')"
        " and table_schema in (%s, 'mysql') and table_name not in ('slow_log', 'general_log', 'innodb_table_stats',"
        " 'innodb_index_stats')",
        [database],
    )
    names = ", ".join(f"`{schema}`.`{name}`" for schema, name in tables)
    for name, checksum in await admin.execute(f"checksum table {names}"):
        state[f"data of {name}"] = str(checksum)
    for query in _SCHEMA_QUERIES:
        rows = await admin.execute(query.replace("{db}", database))
        state[query] = hashlib.sha256(repr(rows).encode()).hexdigest()
    for name, value in await admin.execute("show global variables"):
        if str(name).lower() not in _MOVING:
            state[f"variable {name}"] = str(value)
    data = lab.server.folder
    files = sorted(
        str(path.relative_to(data)) for path in data.rglob("*") if not path.name.startswith("ib_buffer_pool")
    )
    state["files"] = "\n".join(files)
    return state
