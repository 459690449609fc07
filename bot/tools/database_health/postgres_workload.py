"""Checks of what a Postgres server does all day: cache, checkpoints, archiving, and how far it is from wraparound."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.tools.database_health.answer import Check
from bot.tools.database_health.checks import HealthBounds, worst
from bot.tools.database_health.fields import Row, count, instant, maybe_count, number, text, write_iso
from bot.tools.database_health.postgres_server import OURS_ONLY, PostgresServer, has_relation
from bot.tools.database_health.postgres_table_findings import XID_SPACE
from bot.tools.database_health.wording import percent, say_age, say_count, write_size
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

_HOUR_S = 3600.0
_LEAST_CHECKPOINTS = 10

# The statistics of a transaction stand still from their first reading on, until they are let go.
_FORGET = f"select {OWN_MARK} pg_stat_clear_snapshot()"
_BLOCKS = f"""
select {OWN_MARK} blks_hit::float8 as hit, blks_read::float8 as read, clock_timestamp() as at
from pg_stat_database where datname = current_database()"""

# to_jsonb: the columns of this version, whatever it is; up to 16 all of them were in pg_stat_bgwriter.
_CHECKPOINTS = """
select {mark} to_jsonb(c) as counters, (select to_jsonb(w) ->> 'wal_bytes' from {wal} w) as wal_bytes,
  extract(epoch from clock_timestamp() - c.stats_reset)::float8 as age_s,
  pg_size_bytes(current_setting('max_wal_size')) as max_wal_bytes,
  (select setting::float8 from pg_settings where name = 'checkpoint_timeout') as timeout_s
from {view} c"""

_ARCHIVER = f"""
select {OWN_MARK} current_setting('archive_mode') as mode, archived_count as archived, failed_count as failed,
  last_archived_time as last_archived, last_failed_time as last_failed, now() as now
from pg_stat_archiver"""

_DATABASES = f"""
select {OWN_MARK} quote_ident(datname) as database, age(datfrozenxid) as xid_age, mxid_age(datminmxid) as multixact_age,
  current_setting('autovacuum_freeze_max_age')::float8 as freeze_max_age
from pg_database order by greatest(age(datfrozenxid), mxid_age(datminmxid)) desc"""

_OLDEST_TABLES = f"""
select {OWN_MARK} quote_ident(n.nspname) || '.' || quote_ident(t.relname) as table_name, age(t.relfrozenxid) as xid_age
from pg_class t join pg_namespace n on n.oid = t.relnamespace
where {OURS_ONLY} and t.relkind in ('r', 'm') order by age(t.relfrozenxid) desc limit 3"""

# What keeps VACUUM from freezing; of others' sessions only who may see them sees it.
_HOLDERS = f"""
select {OWN_MARK} 'session ' || pid as holder, age(backend_xmin) as xid_age from pg_stat_activity
where backend_xmin is not null and pid <> pg_backend_pid()
union all select 'prepared transaction ' || transaction::text, age(transaction) from pg_prepared_xacts
union all select 'replication slot ' || slot_name, greatest(age(xmin), age(catalog_xmin)) from pg_replication_slots
  where xmin is not null or catalog_xmin is not null
order by 2 desc nulls last limit 3"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """One reading of the counters of the buffer cache."""

    hit: float
    read: float
    at: datetime | None


async def read_blocks(db: ReadOnly) -> Blocks:
    """Read the counters as they are now."""
    await db.fetch(_FORGET)
    row: Row = await db.fetch_one(_BLOCKS) or {}
    return Blocks(hit=number(row, "hit"), read=number(row, "read"), at=instant(row, "at"))


def judge_cache(before: Blocks, after: Blocks, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Judge the share of reads that the cache did not serve: between the readings, or since the counters began."""
    hit, read = after.hit - before.hit, after.read - before.read
    length_s = (after.at - before.at).total_seconds() if after.at and before.at else 0.0
    over = f"in the last {say_age(length_s)}"
    if min(hit, read) < 0 or hit + read < bounds.miss_least:
        hit, read = after.hit, after.read
        since = write_iso(server.counters_since)
        over = f"since {since}" if since else "since the counters began"
        over += ", as too little was read just now"
    total = hit + read
    if total < bounds.miss_least:
        evidence = f"only {say_count(total)} blocks were read {over}: too few to judge"
        return Check(
            check="cache_hit", status="ok", value=None, unit="share of block reads", bound="", evidence=evidence
        )
    ratio = hit / total
    status = bounds.miss.grade(1 - ratio)
    advice = ""
    if status != "ok":
        advice = (
            "find what reads so much (get_slow_queries order_by io, sequential scans in table_health) before "
            "shared_buffers is raised; the operating system's cache may still serve these reads"
        )
    return Check(
        check="cache_hit",
        status=status,
        value=round(ratio, 4),
        unit="share of block reads",
        bound=f"warn at {percent(1 - bounds.miss.warn)} or less",
        evidence=f"{percent(ratio)} of {say_count(total)} block reads came from shared_buffers {over}",
        advice=advice,
    )


async def check_checkpoints(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look whether much WAL forces checkpoints before their time; 17 moved the counters to a view of their own."""
    view = "pg_stat_checkpointer" if await has_relation(db, "pg_stat_checkpointer") else "pg_stat_bgwriter"
    wal = "pg_stat_wal" if await has_relation(db, "pg_stat_wal") else "(select null::text as wal_bytes)"
    row: Row = await db.fetch_one(_CHECKPOINTS.format(mark=OWN_MARK, view=view, wal=wal)) or {}
    found = row.get("counters")
    counters: Row = found if isinstance(found, dict) else {}
    timed = count(counters, "num_timed") or count(counters, "checkpoints_timed")
    requested = count(counters, "num_requested") or count(counters, "checkpoints_req")
    age_s = max(1.0, number(row, "age_s"))
    wal_bytes = float(text(row, "wal_bytes")) if text(row, "wal_bytes") else None
    return judge_checkpoints(
        timed=timed,
        requested=requested,
        age_s=age_s,
        wal_bytes=wal_bytes,
        max_wal_bytes=number(row, "max_wal_bytes"),
        timeout_s=number(row, "timeout_s"),
        bounds=bounds,
    )


def judge_checkpoints(
    *,
    timed: int,
    requested: int,
    age_s: float,
    wal_bytes: float | None,
    max_wal_bytes: float,
    timeout_s: float,
    bounds: HealthBounds,
) -> Check:
    """Judge the counters since their beginning.

    Backups, DROP DATABASE and people request checkpoints too, so that only as many count as the WAL that was
    written explains: one for half of ``max_wal_size`` (https://www.postgresql.org/docs/current/wal-configuration.html).
    """
    explained = requested if wal_bytes is None else min(requested, int(wal_bytes / max(1.0, max_wal_bytes / 2)))
    hourly = explained / (max(age_s, timeout_s) / _HOUR_S)
    forced = explained >= _LEAST_CHECKPOINTS and explained > timed
    status = bounds.requested_checkpoints.grade(hourly) if forced else "ok"
    wal = "" if wal_bytes is None else f", {write_size(wal_bytes)} of WAL"
    advice = ""
    if status != "ok":
        advice = f"raise max_wal_size (now {write_size(max_wal_bytes)}), so that checkpoints come by time"
    return Check(
        check="checkpoints",
        status=status,
        value=round(hourly, 2),
        unit="checkpoints an hour forced by WAL",
        bound=bounds.requested_checkpoints.describe(lambda n: f"{n:g} an hour") + ", if more than by time",
        evidence=f"{timed} by time, {requested} requested{wal} in {say_age(age_s)}",
        advice=advice,
    )


async def check_archiving(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look whether the last attempt to archive WAL failed: then WAL piles up and backups have a hole."""
    row: Row = await db.fetch_one(_ARCHIVER) or {}
    archived, failed = instant(row, "last_archived"), instant(row, "last_failed")
    failing = failed is not None and (archived is None or failed > archived)
    if text(row, "mode") == "off":
        status, evidence = worst(["ok"]), "archive_mode is off"
    elif failing:
        status = worst(["critical"])
        evidence = f"the last attempt failed at {write_iso(failed)}; last success: {write_iso(archived) or 'none'}"
    else:
        status, evidence = worst(["ok"]), f"{say_count(count(row, 'archived'))} files archived, the last one well"
    return Check(
        check="archiving",
        status=status,
        value=float(count(row, "failed")),
        unit="failed attempts",
        bound="critical if the last attempt failed",
        evidence=evidence,
        advice="look at archive_command and the server's log; WAL is kept until it succeeds" if failing else "",
    )


async def check_wraparound(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Compare the oldest transaction and multixact ids of all databases with the 2^31 that there are."""
    rows = await db.fetch(_DATABASES)
    xids = max((count(row, "xid_age") for row in rows), default=0)
    multixacts = max((count(row, "multixact_age") for row in rows), default=0)
    freeze_max_age = number(rows[0], "freeze_max_age") if rows else 0.0
    share = max(xids, multixacts) / XID_SPACE
    status = bounds.wraparound.grade(share)
    late = freeze_max_age > 0 and xids > 2 * freeze_max_age
    if late:
        status = worst([status, "warn"])
    items: list[str] = []
    advice = ""
    if status != "ok":
        worst_db = rows[0]
        items.append(f"database {text(worst_db, 'database')}: {say_count(count(worst_db, 'xid_age'))} transactions")
        items += [
            f"table {text(row, 'table_name')}: {say_count(count(row, 'xid_age'))} transactions"
            for row in await db.fetch(_OLDEST_TABLES)
        ]
        items += [
            f"kept back by {text(row, 'holder')}: {say_count(maybe_count(row, 'xid_age') or 0)} transactions old"
            for row in await db.fetch(_HOLDERS)
        ]
        advice = "end what keeps old rows, then VACUUM (FREEZE) the oldest tables; look why autovacuum does not"
    return Check(
        check="wraparound",
        status=status,
        value=round(share, 4),
        unit="share of 2^31 transaction ids",
        bound=f"{bounds.wraparound.describe(percent)}; warn from 2 x autovacuum_freeze_max_age",
        evidence=(
            f"oldest transaction id {say_count(xids)} old, oldest multixact {say_count(multixacts)}; "
            f"autovacuum freezes from {say_count(freeze_max_age)} on"
        ),
        advice=advice,
        items=tuple(items),
    )
