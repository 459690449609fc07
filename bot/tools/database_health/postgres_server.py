"""What the tools have to know about a Postgres server before they judge anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from agent_core.errors import ToolFailed
from bot.tools.database_health.fields import count, flag, instant, text
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

# Where the database's own counters were never reset, they are as old as the shared ones: those begin with the cluster,
# and again after a crash, which loses all counters. The older of two, as people reset those one by one.
_FACTS = f"""
select {OWN_MARK} now() as now, quote_ident(current_user) as role, quote_ident(current_database()) as database,
  pg_is_in_recovery() as standby, pg_has_role('pg_read_all_stats', 'usage') as sees_all,
  (select count(*) from pg_stat_replication) as standbys,
  coalesce((select stats_reset from pg_stat_database where datname = current_database()),
    least((select stats_reset from pg_stat_bgwriter), (select stats_reset from pg_stat_archiver))) as counters_since"""

LOCKED = """locked as materialized (
  select relation from pg_locks
  where locktype = 'relation' and mode = 'AccessExclusiveLock' and pid is distinct from pg_backend_pid()
    and database = (select oid from pg_database where datname = current_database()))"""
"""A WITH item: relations that cannot be measured now, because a session has or wants them for itself.

Measuring takes an ACCESS SHARE lock and would wait behind it until the time-out.
"""

OURS_ONLY = """n.nspname <> 'information_schema' and n.nspname !~ '^pg_' and t.relpersistence <> 't'"""
"""A condition on ``pg_namespace n`` and ``pg_class t``: neither system schemas nor temporary tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """The server and our place on it.

    Args:
        now: the server's clock.
        role, database: quoted as SQL wants them.
        standby: in recovery.
        sees_all: the role reads everyone's statistics (``pg_read_all_stats``, which ``pg_monitor`` includes).
        standbys: how many stream from here.
        counters_since: when this database's counters began.
    """

    now: datetime
    role: str
    database: str
    standby: bool
    sees_all: bool
    standbys: int
    counters_since: datetime | None

    @property
    def counters_age_s(self) -> float | None:
        """How long the counters have been counting."""
        return None if self.counters_since is None else max(0.0, (self.now - self.counters_since).total_seconds())

    @property
    def monitor_grant(self) -> str:
        """The line that lets the role read everyone's statistics."""
        return f"GRANT pg_monitor TO {self.role};"


async def fetch_postgres(db: ReadOnly) -> PostgresServer:
    """Read the facts.

    Raises:
        ToolFailed: see ``ReadOnly.fetch``.
    """
    row = await db.fetch_one(_FACTS)
    if row is None:
        raise ToolFailed(f"target {db.target.name!r} gave no answer", code="failed", retryable=True)
    return PostgresServer(
        now=instant(row, "now") or datetime.now(UTC),
        role=text(row, "role"),
        database=text(row, "database"),
        standby=flag(row, "standby"),
        sees_all=flag(row, "sees_all"),
        standbys=count(row, "standbys"),
        counters_since=instant(row, "counters_since"),
    )


async def has_relation(db: ReadOnly, name: str) -> bool:
    """Tell whether ``pg_catalog`` of this version has a view of this name."""
    row = await db.fetch_one(f"select {OWN_MARK} to_regclass('pg_catalog.' || %s) is not null as there", (name,))
    return row is not None and flag(row, "there")
