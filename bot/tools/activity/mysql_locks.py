"""Who waits for whose lock on MySQL and MariaDB: rows of InnoDB, and metadata locks of tables.

Row locks: information_schema.INNODB_LOCK_WAITS on MariaDB
(https://mariadb.com/kb/en/information-schema-innodb_lock_waits-table/), performance_schema.data_lock_waits on MySQL 8
(https://dev.mysql.com/doc/refman/8.4/en/performance-schema-data-lock-waits-table.html; from documentation, never run
on MySQL). sys.innodb_lock_waits has the same, and needs the right to execute functions of sys on top. Keys of rows
(lock_data) are data and not read.

Metadata locks: performance_schema.metadata_locks, which says who holds and who waits, but not who waits for whom; that
follows from the modes (https://dev.mysql.com/doc/refman/8.4/en/performance-schema-metadata-locks-table.html).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.activity.locks import Lock
from bot.tools.activity.mysql_sessions import NOW, number_of_seconds, text_of, whole_number
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly, Row

ROW_WAITS_MARIADB = f"""SELECT {OWN_MARK} r.trx_mysql_thread_id AS waiting, b.trx_mysql_thread_id AS blocking,
  w.blocking_trx_id AS blocking_trx, w.requested_lock_id AS wanted_id, w.blocking_lock_id AS held_id,
  wanted.lock_table AS locked, wanted.lock_index AS index_name, wanted.lock_type AS kind,
  wanted.lock_mode AS wanted_mode, held.lock_mode AS held_mode,
  TIMESTAMPDIFF(MICROSECOND, r.trx_wait_started, {NOW}) / 1000000 AS wait_s,
  TIMESTAMPDIFF(MICROSECOND, b.trx_started, {NOW}) / 1000000 AS blocking_s
FROM information_schema.INNODB_LOCK_WAITS w
  JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id
  JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id
  LEFT JOIN information_schema.INNODB_LOCKS wanted ON wanted.lock_id = w.requested_lock_id
  LEFT JOIN information_schema.INNODB_LOCKS held ON held.lock_id = w.blocking_lock_id
ORDER BY r.trx_wait_started LIMIT 2000"""

ROW_WAITS_MYSQL = f"""SELECT {OWN_MARK} r.trx_mysql_thread_id AS waiting, b.trx_mysql_thread_id AS blocking,
  w.BLOCKING_ENGINE_TRANSACTION_ID AS blocking_trx, w.REQUESTING_ENGINE_LOCK_ID AS wanted_id,
  w.BLOCKING_ENGINE_LOCK_ID AS held_id, CONCAT(wanted.OBJECT_SCHEMA, '.', wanted.OBJECT_NAME) AS locked,
  wanted.INDEX_NAME AS index_name, wanted.LOCK_TYPE AS kind,
  wanted.LOCK_MODE AS wanted_mode, held.LOCK_MODE AS held_mode,
  TIMESTAMPDIFF(MICROSECOND, r.trx_wait_started, {NOW}) / 1000000 AS wait_s,
  TIMESTAMPDIFF(MICROSECOND, b.trx_started, {NOW}) / 1000000 AS blocking_s
FROM performance_schema.data_lock_waits w
  JOIN information_schema.INNODB_TRX r ON r.trx_id = w.REQUESTING_ENGINE_TRANSACTION_ID
  JOIN information_schema.INNODB_TRX b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID
  LEFT JOIN performance_schema.data_locks wanted ON wanted.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID
  LEFT JOIN performance_schema.data_locks held ON held.ENGINE_LOCK_ID = w.BLOCKING_ENGINE_LOCK_ID
ORDER BY r.trx_wait_started LIMIT 2000"""

_METADATA = f"""SELECT {OWN_MARK} t.PROCESSLIST_ID AS pid, m.OBJECT_TYPE AS type, m.OBJECT_SCHEMA AS in_schema,
  m.OBJECT_NAME AS name, m.LOCK_TYPE AS mode, m.LOCK_STATUS AS status
FROM performance_schema.metadata_locks m
  JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID
  JOIN (SELECT DISTINCT OBJECT_TYPE, OBJECT_SCHEMA, OBJECT_NAME FROM performance_schema.metadata_locks
        WHERE LOCK_STATUS = 'PENDING') p
    ON p.OBJECT_TYPE = m.OBJECT_TYPE AND p.OBJECT_SCHEMA <=> m.OBJECT_SCHEMA AND p.OBJECT_NAME <=> m.OBJECT_NAME
WHERE t.PROCESSLIST_ID IS NOT NULL LIMIT 5000"""

# Which granted modes a request has to wait for; https://dev.mysql.com/doc/dev/mysql-server/latest/classMDL__lock.html
_TABLE_CONFLICTS: Mapping[str, frozenset[str]] = {
    mode: frozenset(others.split())
    for mode, others in {
        "SHARED": "EXCLUSIVE",
        "SHARED_HIGH_PRIO": "EXCLUSIVE",
        "SHARED_READ": "SHARED_NO_READ_WRITE EXCLUSIVE",
        "SHARED_WRITE": "SHARED_READ_ONLY SHARED_NO_WRITE SHARED_NO_READ_WRITE EXCLUSIVE",
        "SHARED_WRITE_LOW_PRIO": "SHARED_READ_ONLY SHARED_NO_WRITE SHARED_NO_READ_WRITE EXCLUSIVE",
        "SHARED_UPGRADABLE": "SHARED_UPGRADABLE SHARED_NO_WRITE SHARED_NO_READ_WRITE EXCLUSIVE",
        "SHARED_READ_ONLY": "SHARED_WRITE SHARED_WRITE_LOW_PRIO SHARED_NO_READ_WRITE EXCLUSIVE",
        "SHARED_NO_WRITE": "SHARED_WRITE SHARED_WRITE_LOW_PRIO SHARED_UPGRADABLE SHARED_NO_WRITE "
        "SHARED_NO_READ_WRITE EXCLUSIVE",
        "SHARED_NO_READ_WRITE": "SHARED_READ SHARED_WRITE SHARED_WRITE_LOW_PRIO SHARED_UPGRADABLE SHARED_READ_ONLY "
        "SHARED_NO_WRITE SHARED_NO_READ_WRITE EXCLUSIVE",
    }.items()
}
_SCOPES = frozenset({"GLOBAL", "COMMIT", "SCHEMA", "TABLESPACE", "BACKUP LOCK"})
# What statements take of MariaDB's backup lock goes together; everything else of it stops some of them.
_BACKUP_STATEMENTS = frozenset(
    f"BACKUP_{word}" for word in ("DML", "TRANS_DML", "SYS_DML", "DDL", "ALTER_COPY", "COMMIT")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One session waits for another.

    Args:
        waiting, blocking: their numbers; ``blocking`` is 0 for a transaction without a session.
        blocking_trx: names the blocking transaction, for a row lock.
        wanted, held: the two locks, with the same ``target``.
        blocking_s: how long the blocking transaction has been open, for a row lock.
    """

    waiting: int
    blocking: int
    blocking_trx: str
    wanted: Lock
    held: Lock
    blocking_s: float | None = None


async def fetch_row_waits(db: MySqlReadOnly) -> list[Wait]:
    """Read who waits for a row.

    Raises:
        ToolFailed: ``insufficient_privilege`` where the account may not see transactions.
    """
    rows = await db.fetch(ROW_WAITS_MARIADB if db.flavor == "mariadb" else ROW_WAITS_MYSQL)
    wanted_by_somebody = {text_of(row["wanted_id"]) for row in rows}
    return [_read_row_wait(row, wanted_by_somebody) for row in rows]


def _read_row_wait(row: Row, wanted_by_somebody: set[str]) -> Wait:
    relation = text_of(row["locked"]).replace("`", "") or None
    index = text_of(row["index_name"])
    target = text_of(row["wanted_id"])
    what = "the table" if text_of(row["kind"]) == "TABLE" else "a row of"
    thing = f"{what} {relation or 'a table'}{f' (index {index})' if index else ''}"

    def lock(mode: object, *, granted: bool) -> Lock:
        wait_s = None if granted else number_of_seconds(row["wait_s"])
        return Lock(
            granted=granted, target=target, thing=thing, relation=relation, mode=f"{text_of(mode)} lock", kind="row",
            wait_s=wait_s,
        )  # fmt: skip

    return Wait(
        waiting=whole_number(row["waiting"]),
        blocking=whole_number(row["blocking"]),
        blocking_trx=text_of(row["blocking_trx"]),
        wanted=lock(row["wanted_mode"], granted=False),
        held=lock(row["held_mode"], granted=text_of(row["held_id"]) not in wanted_by_somebody),
        blocking_s=number_of_seconds(row["blocking_s"]),
    )


async def fetch_metadata_waits(db: MySqlReadOnly) -> list[Wait] | None:
    """Read who waits for a table's definition, or for a lock of GET_LOCK; None where the account may not read that."""
    try:
        rows = await db.fetch(_METADATA)
    except ToolFailed as failure:
        if failure.code != "insufficient_privilege":
            raise
        return None
    return find_metadata_waits(rows)


def find_metadata_waits(rows: Sequence[Row]) -> list[Wait]:
    """From who holds and who waits to who waits for whom.

    A request waits for every granted lock that does not go with its mode; if there is none, for the requests that
    stand in front and do not go with it (a waiting ALTER TABLE keeps later statements out).
    """
    by_object: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        key = (text_of(row["type"]), text_of(row["in_schema"]), text_of(row["name"]))
        by_object.setdefault(key, []).append(row)
    waits: list[Wait] = []
    for key, held_and_wanted in by_object.items():
        for request in held_and_wanted:
            if request["status"] != "PENDING":
                continue
            others = [
                row
                for row in held_and_wanted
                if row["pid"] != request["pid"] and conflicts(key[0], text_of(request["mode"]), text_of(row["mode"]))
            ]
            granted = [row for row in others if row["status"] == "GRANTED"]
            waits += [_metadata_wait(key, request, row) for row in granted or others]
    return waits


def conflicts(object_type: str, wanted: str, held: str) -> bool:
    """Whether a request in mode ``wanted`` has to wait for one that is held in mode ``held``."""
    if object_type == "BACKUP":
        return not (wanted in _BACKUP_STATEMENTS and held in _BACKUP_STATEMENTS)
    if object_type in _SCOPES:
        return wanted != held or wanted == "EXCLUSIVE"
    if wanted == "EXCLUSIVE":
        return True
    return held in _TABLE_CONFLICTS.get(wanted, frozenset({"EXCLUSIVE"}))


def _metadata_wait(key: tuple[str, str, str], request: Row, blocker: Row) -> Wait:
    kind, schema, name = key
    relation = f"{schema}.{name}" if kind == "TABLE" else None
    # The name of a lock of GET_LOCK is a value of the application's.
    thing = relation or {"USER LEVEL LOCK": "a lock of GET_LOCK"}.get(kind, f"{kind.lower()} {schema}".strip())
    target = "/".join(key)
    wanted, held = (
        Lock(
            granted=row["status"] == "GRANTED", target=target, thing=thing, relation=relation,
            mode=f"{text_of(row['mode'])} metadata lock", kind="metadata", wait_s=None,
        )
        for row in (request, blocker)
    )  # fmt: skip
    return Wait(
        waiting=whole_number(request["pid"]),
        blocking=whole_number(blocker["pid"]),
        blocking_trx="",
        wanted=wanted,
        held=held,
    )
