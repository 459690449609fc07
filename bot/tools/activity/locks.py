"""Who waits for whose lock on a Postgres server.

Whom a session waits for says ``pg_blocking_pids`` alone: it knows the queues, parallel workers and prepared
transactions. pg_locks only names what is waited for (https://www.postgresql.org/docs/current/view-pg-locks.html); a
join over it would let those who wait side by side block each other, and mix up tables of several databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.tools.activity.sessions import Session, columns, read_session, seconds, whole
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly

MOST_WAITING = 500
"""Waiting sessions that are looked at, the longest waits first."""

PREPARED = 0
"""What ``pg_blocking_pids`` says instead of a number for a prepared transaction."""

_WAITSTART_SINCE = 140_000
_TARGET = "(locktype, database, relation, page, tuple, virtualxid, transactionid::text, classid, objid, objsubid)::text"

_LOCKS = f"""select pid, locktype, mode, granted, page, tuple, virtualxid, transactionid, classid, objid, objsubid,
    database, relation, virtualtransaction, {{waitstart}} as wait_s, {_TARGET} as target
  from pg_locks"""

_LOCK_ROW = """jsonb_build_object('locktype', l.locktype, 'mode', l.mode, 'granted', l.granted, 'page', l.page,
    'tuple', l.tuple, 'virtualxid', l.virtualxid, 'transactionid', l.transactionid::text, 'classid', l.classid::int8,
    'objid', l.objid::int8, 'objsubid', l.objsubid, 'wait_s', l.wait_s, 'target', l.target,
    'elsewhere', case when l.database not in (0, (select oid from pg_database where datname = current_database()))
                 then (select quote_ident(d.datname) from pg_database d where d.oid = l.database) end,
    'oid', l.relation::int8,
    'relation', (select quote_ident(n.nspname) || '.' || quote_ident(c.relname)
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = l.relation
                 and l.database in (0, (select oid from pg_database where datname = current_database()))))"""

_WAITS = """with locks as materialized ({locks}),
activity as materialized (select * from pg_stat_activity),
waiting as (select coalesce({leader}, l.pid) as pid from locks l left join activity a on a.pid = l.pid
            where not l.granted and l.pid <> pg_backend_pid()
            group by 1 order by max(l.wait_s) desc nulls last, 1 limit {most}),
edges as materialized (select pid, pg_blocking_pids(pid) as blockers from waiting),
involved as (select pid from edges where cardinality(blockers) > 0
             union select unnest(blockers) from edges),
wanted as (select distinct target from locks where not granted),
telling as materialized (select coalesce({member_leader}, l.pid) as owner, l.* from locks l
            left join activity m on m.pid = l.pid
            where not l.granted or l.locktype = 'tuple' or l.target in (select target from wanted))
select {mark} i.pid as asked_pid, e.blockers, {columns},
  array(select {lock_row} from telling l where l.owner = i.pid limit 100) as locks
from involved i left join activity a on a.pid = i.pid left join edges e on e.pid = i.pid
where i.pid <> 0"""

_PREPARED = """with locks as materialized ({locks} where pid is null)
select {mark} textsend(p.gid) as gid, textsend(p.owner::text) as owner, textsend(p.database::text) as db,
  extract(epoch from clock_timestamp() - p.prepared)::float8 as age_s,
  to_char(p.prepared at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as prepared,
  array(select {lock_row} from locks l where l.virtualtransaction in
        (select v.virtualtransaction from locks v where v.transactionid::text = p.transaction::text
         union select '-1/' || p.transaction::text)) as locks
from pg_prepared_xacts p order by p.prepared limit 100"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One row of pg_locks, in words.

    Args:
        granted: held, not waited for.
        target: names the thing that is locked, whatever the mode.
        thing: what it is: ``public.orders``, ``transaction 741``, ``advisory lock 42``.
        relation: its table, if it is on one and has a name here.
        mode: ``AccessExclusiveLock`` and so on.
        kind: the server's ``locktype``.
        wait_s: how long it has been waited for; None where the server does not tell.
    """

    granted: bool
    target: str
    thing: str
    relation: str | None
    mode: str
    kind: str
    wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A session that waits or is waited for; ``session`` is None when it has ended in the meantime."""

    pid: int
    session: Session | None
    blockers: tuple[int, ...]
    locks: tuple[Lock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """A transaction without a session, made by PREPARE TRANSACTION."""

    gid: str
    owner: str
    db: str
    age_s: float | None
    prepared: str
    locks: tuple[Lock, ...]


async def fetch_participants(db: ReadOnly) -> dict[int, Participant]:
    """Read everybody who waits for a lock, and whom they wait for, in one statement; by number."""
    knows_leader = db.version_num >= 130_000
    rows = await db.fetch(
        _WAITS.format(
            mark=OWN_MARK,
            locks=_locks(db),
            leader="a.leader_pid" if knows_leader else "null::int",
            member_leader="m.leader_pid" if knows_leader else "null::int",
            most=MOST_WAITING,
            columns=columns(db.version_num),
            lock_row=_LOCK_ROW,
        )
    )
    return {
        whole(row["asked_pid"]): Participant(
            pid=whole(row["asked_pid"]),
            session=None if row["pid"] is None else read_session(row),
            blockers=_numbers(row["blockers"]),
            locks=_read_locks(row["locks"]),
        )
        for row in rows
    }


async def fetch_prepared(db: ReadOnly) -> tuple[PreparedTransaction, ...]:
    """Read the prepared transactions of the whole server with the locks that they hold, the oldest first."""
    rows = await db.fetch(_PREPARED.format(mark=OWN_MARK, locks=_locks(db), lock_row=_LOCK_ROW))
    return tuple(
        PreparedTransaction(
            gid=_decode(row["gid"]),
            owner=_decode(row["owner"]),
            db=_decode(row["db"]),
            age_s=seconds(row["age_s"]),
            prepared=str(row["prepared"]),
            locks=_read_locks(row["locks"]),
        )
        for row in rows
    )


def _locks(db: ReadOnly) -> str:
    known = db.version_num >= _WAITSTART_SINCE
    return _LOCKS.format(
        waitstart="extract(epoch from clock_timestamp() - waitstart)::float8" if known else "null::float8"
    )


def _read_locks(value: object) -> tuple[Lock, ...]:
    found: Iterable[object] = value if isinstance(value, list) else ()
    return tuple(_read_lock(lock) for lock in found if isinstance(lock, Mapping))


def _read_lock(row: Mapping[str, object]) -> Lock:
    relation = None if row["relation"] is None else str(row["relation"])
    return Lock(
        granted=bool(row["granted"]),
        target=str(row["target"]),
        thing=_name_thing(row, relation),
        relation=relation,
        mode=str(row["mode"]),
        kind=str(row["locktype"]),
        wait_s=seconds(row["wait_s"]),
    )


def _name_thing(row: Mapping[str, object], relation: str | None) -> str:
    """Name what is locked: the ``locktype`` decides which columns say so."""
    table = relation
    if table is None and row["oid"] is not None:
        where = f" of database {row['elsewhere']}" if row["elsewhere"] else ""
        table = f"relation {row['oid']}{where}"
    kind = row["locktype"]
    if kind == "advisory":
        return f"advisory lock {_advisory_key(row)}"
    names = {
        "relation": f"{table}",
        "tuple": f"row ({row['page']},{row['tuple']}) of {table}",
        "page": f"page {row['page']} of {table}",
        "extend": f"the extension of {table}",
        "transactionid": f"transaction {row['transactionid']}",
        "virtualxid": f"virtual transaction {row['virtualxid']}",
    }
    where = f" {row['classid']}/{row['objid']}" if row["objid"] is not None else ""
    return names.get(str(kind), f"{kind}{where}")


def _advisory_key(row: Mapping[str, object]) -> str:
    """Write the key as it was given: one bigint, or two ints (https://www.postgresql.org/docs/current/view-pg-locks.html)."""
    high, low = whole(row["classid"]), whole(row["objid"])
    where = f" of database {row['elsewhere']}" if row["elsewhere"] else ""
    if row["objsubid"] == 1:
        return f"{_signed(high << 32 | low, 64)}{where}"
    return f"({_signed(high, 32)}, {_signed(low, 32)}){where}"


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(sorted({whole(number) for number in value})) if isinstance(value, list) else ()


def _decode(value: object) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else ""
