"""Checks of replication on Postgres: how far standbys are behind, and which slots keep WAL."""

from __future__ import annotations

import re

from bot.tools.database_health.answer import Check, Status
from bot.tools.database_health.checks import HealthBounds, unknown, worst
from bot.tools.database_health.fields import Row, count, flag, maybe_number, number, text
from bot.tools.database_health.postgres_server import PostgresServer
from bot.tools.database_health.wording import say_age, say_number, write_size
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

_STANDBYS = f"""
select {OWN_MARK} pid::text as pid, application_name as name, state, sync_state,
  pg_wal_lsn_diff(pg_current_wal_lsn(), coalesce(replay_lsn, flush_lsn, sent_lsn))::float8 as lag_bytes,
  extract(epoch from replay_lag)::float8 as lag_s,
  current_setting('synchronous_standby_names') as synchronous
from pg_stat_replication where state is distinct from 'backup' order by lag_bytes desc nulls last"""

_SYNCHRONOUS = f"select {OWN_MARK} current_setting('synchronous_standby_names') as names"

_STANDBY = f"""
select {OWN_MARK} pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())::float8 as lag_bytes,
  extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())::float8 as age_s,
  pg_is_wal_replay_paused() as paused, (select count(*) from pg_stat_wal_receiver where pid is not null) as receivers"""

# to_jsonb: wal_status came with 13, inactive_since and invalidation_reason with 17.
_SLOTS = f"""
select {OWN_MARK} quote_ident(s.slot_name) as slot, s.slot_type, s.active,
  to_jsonb(s) ->> 'wal_status' as wal_status, to_jsonb(s) ->> 'inactive_since' as inactive_since,
  to_jsonb(s) ->> 'invalidation_reason' as invalidated,
  pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end,
    s.restart_lsn)::float8 as kept_bytes,
  coalesce(current_setting('max_slot_wal_keep_size', true), '-1') as most
from pg_replication_slots s where not s.temporary order by kept_bytes desc nulls last"""

_UNSAFE = re.compile(r"[^\w.:/ -]")


async def check_replication(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look how far standbys are behind; on a standby, how far it is itself."""
    if server.standby:
        return await _check_standby(db, bounds)
    rows = await db.fetch(_STANDBYS)
    if server.standbys and not server.sees_all:
        return unknown(
            "replication",
            f"{say_number(server.standbys, 'standby')} streaming from here, but the role may not see how far they are",
            grant=server.monitor_grant,
        )
    asked: Row = await db.fetch_one(_SYNCHRONOUS) or {}
    lost = bool(text(asked, "names")) and not any(text(row, "sync_state") in ("sync", "quorum") for row in rows)
    statuses: list[Status] = ["critical" if lost else "ok"]
    for row in rows:
        statuses += [bounds.lag_bytes.grade(number(row, "lag_bytes")), bounds.lag_s.grade(number(row, "lag_s"))]
    status = worst(statuses)
    most_bytes = max((number(row, "lag_bytes") for row in rows), default=0.0)
    most_s = max((number(row, "lag_s") for row in rows), default=0.0)
    evidence = "no standby streams from here"
    if rows:
        evidence = f"{say_number(len(rows), 'standby')}, at most {write_size(most_bytes)} and {say_age(most_s)} behind"
    if lost:
        evidence += "; synchronous_standby_names asks for one, so that every commit waits"
    return Check(
        check="replication",
        status=status,
        value=most_bytes,
        unit="bytes behind",
        bound=_lag_bound(bounds),
        evidence=evidence,
        advice=_replication_advice(status, lost=lost),
        items=tuple(_say_standby(row) for row in rows),
    )


def _replication_advice(status: Status, *, lost: bool) -> str:
    if lost:
        return "bring the synchronous standby back, or take it out of synchronous_standby_names and reload"
    if status == "ok":
        return ""
    return "look at the network, the standby's disk, and at long queries or conflicts on it"


def _lag_bound(bounds: HealthBounds) -> str:
    return f"bytes: {bounds.lag_bytes.describe(write_size)}; time: {bounds.lag_s.describe(say_age)}"


def _say_standby(row: Row) -> str:
    lag_s = maybe_number(row, "lag_s")
    behind = "no delay measured" if lag_s is None else f"{say_age(lag_s)} behind"
    # A standby gives itself this name, so it is shown without anything that a name does not need.
    name = _UNSAFE.sub("", text(row, "name"))[:63]
    state = f"{text(row, 'state')}, {text(row, 'sync_state')}"
    return f"standby {name} (pid {text(row, 'pid')}; {state}): {write_size(number(row, 'lag_bytes'))}, {behind}"


async def _check_standby(db: ReadOnly, bounds: HealthBounds) -> Check:
    row: Row = await db.fetch_one(_STANDBY) or {}
    lag_bytes, streaming, paused = number(row, "lag_bytes"), count(row, "receivers") > 0, flag(row, "paused")
    # Without new transactions on the primary the last one grows old on a standby that is not behind.
    behind_s = 0.0 if streaming and lag_bytes <= 0 else number(row, "age_s")
    statuses = [bounds.lag_bytes.grade(lag_bytes), bounds.lag_s.grade(behind_s)]
    evidence = f"this standby has {write_size(lag_bytes)} received and not replayed, and is {say_age(behind_s)} behind"
    advice = ""
    if paused:
        statuses.append("warn")
        evidence += "; replay is paused"
        advice = "SELECT pg_wal_replay_resume(); on it, unless it was paused on purpose"
    if not streaming:
        statuses.append("warn")
        evidence += "; it does not stream from a primary"
        advice = advice or "look at primary_conninfo and at the server's log, unless it replays an archive on purpose"
    status = worst(statuses)
    return Check(
        check="replication",
        status=status,
        value=round(behind_s, 1),
        unit="seconds behind",
        bound=_lag_bound(bounds),
        evidence=evidence,
        advice=advice or _replication_advice(status, lost=False),
    )


async def check_slots(db: ReadOnly, server: PostgresServer, bounds: HealthBounds) -> Check:
    """Look for replication slots that keep WAL, above all those that nobody uses."""
    rows = await db.fetch(_SLOTS)
    judged = [(grade_slot(row, bounds), row) for row in rows]
    status = worst(["ok", *(found for found, _ in judged)])
    most = max((number(row, "kept_bytes") for row in rows), default=0.0)
    evidence = (
        f"{say_number(len(rows), 'slot')}, keeping up to {write_size(most)} of WAL"
        if rows
        else "there are no replication slots"
    )
    advice = ""
    if status != "ok":
        advice = (
            "let the consumer come back, or, if it is gone for good: SELECT pg_drop_replication_slot('NAME'); "
            "max_slot_wal_keep_size bounds what a slot may keep"
        )
    return Check(
        check="slots",
        status=status,
        value=most,
        unit="bytes of WAL",
        bound=f"unused: {bounds.idle_slot_bytes.describe(write_size)}; used: {bounds.slot_bytes.describe(write_size)}",
        evidence=evidence,
        advice=advice,
        items=tuple(_say_slot(row) for found, row in judged if found != "ok" or flag(row, "active"))[:20],
    )


def grade_slot(row: Row, bounds: HealthBounds) -> Status:
    """Grade one row of ``pg_replication_slots``."""
    if text(row, "invalidated") or text(row, "wal_status") == "lost":
        return "critical"
    bound = bounds.slot_bytes if flag(row, "active") else bounds.idle_slot_bytes
    statuses = [bound.grade(number(row, "kept_bytes"))]
    if text(row, "wal_status") == "unreserved":
        statuses.append("critical")
    return worst(statuses)


def _say_slot(row: Row) -> str:
    use = "in use" if flag(row, "active") else "not in use"
    if not flag(row, "active") and text(row, "inactive_since"):
        use += f" since {text(row, 'inactive_since')}"
    wal = f", WAL {text(row, 'wal_status')}" if text(row, "wal_status") not in ("", "reserved") else ""
    lost = f", invalidated: {text(row, 'invalidated')}" if text(row, "invalidated") else ""
    kind = f"{text(row, 'slot_type')} slot"
    return f"{kind} {text(row, 'slot')}, {use}: keeps {write_size(number(row, 'kept_bytes'))}{wal}{lost}"
