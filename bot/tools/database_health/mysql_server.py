"""What the tools have to know about a MySQL or MariaDB server before they judge anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent_core.errors import ToolFailed
from bot.tools.database_health.fields import Row, count, instant, text
from bot.tools.database_health.wording import say_number
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly

SYSTEM_SCHEMAS = "('mysql', 'information_schema', 'performance_schema', 'sys')"

_FACTS = f"SELECT {OWN_MARK} CURRENT_USER() AS account, DATABASE() AS db, UTC_TIMESTAMP() AS now"
_STATUS = f"SHOW {OWN_MARK} GLOBAL STATUS WHERE Variable_name IN ({{}})"

# MySQL 8 keeps such numbers for a day unless it is told not to; from documentation, never run:
# https://dev.mysql.com/doc/refman/8.4/en/server-system-variables.html#sysvar_information_schema_stats_expiry
_FRESH = f"SET {OWN_MARK} SESSION information_schema_stats_expiry = 0"

_SEEN = "SELECT {mark} COUNT(*) AS seen FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' AND {scope}"

# What InnoDB itself knows, whatever the account may read; the names differ between the two servers. The one of MySQL 8
# is from documentation, never run: https://dev.mysql.com/doc/refman/8.4/en/information-schema-innodb-tables-table.html
_ALL_TABLES = "SELECT {mark} NAME AS name FROM information_schema.{view} WHERE NAME LIKE '%%/%%' AND NAME LIKE %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlServer:
    """The server and our place on it.

    Args:
        now: the server's clock.
        account: quoted as GRANT wants it.
        database: the target's; empty when it names none, then all but the system's are looked at.
        started_at: since then it counts.
    """

    now: datetime
    account: str
    database: str
    started_at: datetime

    @property
    def uptime_s(self) -> float:
        """How long the server has been counting."""
        return max(0.0, (self.now - self.started_at).total_seconds())

    @property
    def process_grant(self) -> str:
        """The line that lets the account see everyone's sessions and InnoDB's own tables."""
        return f"GRANT PROCESS ON *.* TO {self.account};"

    @property
    def counters_grant(self) -> str:
        """The line that lets the account read the performance schema."""
        return f"GRANT SELECT ON performance_schema.* TO {self.account};"

    def scope(self, column: str) -> tuple[str, tuple[object, ...]]:
        """A condition on a column with a schema's name, and its parameters."""
        if self.database:
            return f"{column} = %s", (self.database,)
        return f"{column} NOT IN {SYSTEM_SCHEMAS}", ()


async def fetch_mysql(db: MySqlReadOnly) -> MySqlServer:
    """Read the facts.

    Raises:
        ToolFailed: see ``MySqlReadOnly.fetch``.
    """
    if db.flavor == "mysql":
        await db.fetch(_FRESH)
    row: Row = await db.fetch_one(_FACTS) or {}
    status = await fetch_status(db, ["Uptime"])
    now = instant(row, "now") or datetime.now(UTC)
    user, _, host = text(row, "account").rpartition("@")
    return MySqlServer(
        now=now,
        account=f"{_quote_text(user)}@{_quote_text(host)}",
        database=text(row, "db"),
        started_at=now - timedelta(seconds=status.get("Uptime", 0.0)),
    )


async def fetch_status(db: MySqlReadOnly, names: Sequence[str]) -> Mapping[str, float]:
    """Read status counters by their names; those that this server does not have are left out."""
    listed = ", ".join(_quote_text(name) for name in names)
    found: dict[str, float] = {}
    for row in await db.fetch(_STATUS.format(listed)):
        name, value = text(row, "Variable_name"), text(row, "Value")
        if value.replace(".", "", 1).isdigit():
            found[name] = float(value)
    return found


async def count_tables(db: MySqlReadOnly, server: MySqlServer) -> int:
    """Count the tables that the account may see."""
    scope, values = server.scope("TABLE_SCHEMA")
    return count(await db.fetch_one(_SEEN.format(mark=OWN_MARK, scope=scope), values) or {}, "seen")


async def find_hidden_tables(db: MySqlReadOnly, server: MySqlServer, seen: int) -> str:
    """Say how to see tables that InnoDB has and the account may not see; empty when there are none, or nobody knows."""
    view = "INNODB_SYS_TABLES" if db.flavor == "mariadb" else "INNODB_TABLES"
    like = f"{_encode_name(server.database)}/%" if server.database else "%"
    try:
        rows = await db.fetch(_ALL_TABLES.format(mark=OWN_MARK, view=view), (like,))
    except ToolFailed as failure:
        if failure.code == "connect_failed":
            raise
        return ""
    # One name for each partition; full-text indexes bring tables of their own.
    names = {text(row, "name").partition("#")[0].lower() for row in rows}
    own = {n for n in names if n and not n.endswith("/") and n.partition("/")[0] not in ("mysql", "sys")}
    hidden = len({name for name in own if not name.rpartition("/")[2].startswith("fts_")}) - seen
    if hidden <= 0:
        return ""
    scope = f"{quote_name(server.database)}.*" if server.database else "the databases' tables (DATABASE.*)"
    return f"{say_number(hidden, 'table')} not visible to this account; GRANT SELECT ON {scope} TO {server.account};"


def quote_name(name: str) -> str:
    """A name as it is written in MySQL's SQL, always quoted."""
    return "`" + name.replace("`", "``") + "`"


def _quote_text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _encode_name(name: str) -> str:
    """As InnoDB names a schema in its own tables; LIKE's wildcards, and what it encodes, match any sign."""
    return "".join(sign if sign.isascii() and sign.isalnum() else "%" for sign in name)
