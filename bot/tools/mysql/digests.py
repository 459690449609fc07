"""The server's statement digests: cumulative counters by schema and shape, their texts, and whether they are kept.

Columns: https://dev.mysql.com/doc/refman/8.4/en/performance-schema-statement-summary-tables.html,
https://mariadb.com/kb/en/performance-schema-events_statements_summary_by_digest-table/. Times there are picoseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly, Row
from bot.tools.slow_queries.counters import Counter, Counters, StatementKey

PICO = 1e12
"""Picoseconds in a second."""

OVERFLOW = StatementKey(userid=0, dbid=0, toplevel=True, queryid=0)
"""The row in which the server counts every shape that found no room in its table of digests."""

_TEXT_CHARS = 8_000
_TABLE = "performance_schema.events_statements_summary_by_digest"

VARIABLES = """SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('performance_schema', 'performance_schema_digests_size', 'performance_schema_events_statements_history_long_size',
   'server_uuid', 'server_uid')"""
UPTIME = "SHOW GLOBAL STATUS WHERE Variable_name = 'Uptime'"
_CONSUMERS = f"""SELECT {OWN_MARK} NAME AS name, ENABLED AS enabled FROM performance_schema.setup_consumers
WHERE NAME IN ('global_instrumentation', 'thread_instrumentation', 'statements_digest', 'events_statements_current',
  'events_statements_history_long')"""
_NOW = f"SELECT {OWN_MARK} UNIX_TIMESTAMP(SYSDATE(6)) AS hermod_now, @@hostname AS host, @@port AS port"

_COUNTERS = f"""SELECT {OWN_MARK} SCHEMA_NAME AS schema_name, DIGEST AS digest, COUNT_STAR AS calls,
  SUM_TIMER_WAIT AS total, MAX_TIMER_WAIT AS longest, SUM_ROWS_SENT + SUM_ROWS_AFFECTED AS row_count,
  UNIX_TIMESTAMP(FIRST_SEEN) AS since
FROM {_TABLE} WHERE COUNT_STAR > 0"""

# MariaDB keeps no digest of what comes over the protocol of prepared statements, or runs inside procedures.
_WITHOUT_DIGEST = f"""SELECT {OWN_MARK} COUNT_STAR AS calls, SUM_TIMER_WAIT AS total
FROM performance_schema.events_statements_summary_global_by_event_name WHERE EVENT_NAME = 'statement/com/Execute'"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """What the server keeps.

    Args:
        system_id: names the server: counters of another one are not comparable.
        digests_size: how many shapes its table has room for.
        history: it keeps single executions.
        history_size: how many of them.
        now, started_at: on the server's clock; the start is known to the second.
    """

    system_id: str
    digests_size: int
    history: bool
    history_size: int
    now: datetime
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The counters, and for each key the schema (None: no default one) and the digest that it was made of."""

    counters: Counters
    names: Mapping[StatementKey, tuple[str | None, str]] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestText:
    """One shape: its text as the server keeps it, and what is told since the counters began.

    Args:
        sql: with ``?`` for literals, still to be redacted; names are the server's business, not checked.
        schema: the default one of the sessions that ran it; empty for none.
        calls: executions, of which each ``_share`` below is a part (0..1).
        rows_examined: by all of them.
        p95_s, p99_s: from the server's histogram; None where it keeps none (MariaDB).
    """

    sql: str
    schema: str
    calls: int
    rows_examined: int
    no_index_share: float
    tmp_disk_share: float
    error_share: float
    p95_s: float | None = None
    p99_s: float | None = None


async def fetch_instruments(db: MySqlReadOnly) -> Instruments:
    """Look whether the server keeps digests.

    Raises:
        ToolFailed: ``not_preloaded`` with what to switch on; ``insufficient_privilege``.
    """
    variables = {str(row["Variable_name"]): str(row["Value"]) for row in await db.fetch(VARIABLES)}
    if variables.get("performance_schema") != "ON":
        raise ToolFailed(
            f"target {db.target.name!r}: performance_schema is off, so the server counts no statements",
            code="not_preloaded",
            fix=(
                "put performance_schema = ON, performance-schema-consumer-events-statements-current = ON and "
                "performance-schema-consumer-events-statements-history-long = ON under [mysqld] in the server's "
                "configuration and restart it"
            ),
        )
    consumers = {str(row["name"]): row["enabled"] == "YES" for row in await db.fetch(_CONSUMERS)}
    needed = ("global_instrumentation", "thread_instrumentation", "statements_digest")
    if off := [name for name in needed if not consumers.get(name)]:
        names = ", ".join(f"'{name}'" for name in off)
        raise ToolFailed(
            f"target {db.target.name!r}: the server keeps no digests of statements",
            code="not_preloaded",
            fix=f"UPDATE performance_schema.setup_consumers SET ENABLED = 'YES' WHERE NAME IN ({names});",
        )
    server, uptime = await db.fetch_one(_NOW), await db.fetch_one(UPTIME)
    now = datetime.fromtimestamp(_number(server, "hermod_now"), UTC)
    place = "" if server is None else f"{server['host']}:{server['port']}"
    return Instruments(
        system_id=variables.get("server_uuid") or variables.get("server_uid") or place,
        digests_size=int(variables.get("performance_schema_digests_size", "0")),
        history=consumers.get("events_statements_current", False)
        and consumers.get("events_statements_history_long", False),
        history_size=int(variables.get("performance_schema_events_statements_history_long_size", "0")),
        now=now,
        started_at=now - timedelta(seconds=_number(uptime, "Value")),
    )


async def fetch_reading(db: MySqlReadOnly, instruments: Instruments, *, taken_at: datetime) -> Reading:
    """Read the numbers of all digests, without texts.

    The table tells no time of its last TRUNCATE. An entry never leaves it otherwise, so the oldest ``FIRST_SEEN``
    stands for the instant since when everything counts: it moves only when the table was emptied or the server
    restarted, and nothing ran between that instant and it.
    """
    entries: dict[StatementKey, Counter] = {}
    names: dict[StatementKey, tuple[str | None, str]] = {}
    for row in await db.fetch(_COUNTERS):
        schema, digest = row["schema_name"], row["digest"]
        key = OVERFLOW if digest is None else make_key(None if schema is None else str(schema), str(digest))
        calls, total_s = int(_number(row, "calls")), _number(row, "total") / PICO
        names[key] = (None if schema is None else str(schema), "" if digest is None else str(digest))
        entries[key] = Counter(
            calls=calls,
            total_s=total_s,
            mean_s=total_s / calls,
            stddev_s=0.0,
            max_s=_number(row, "longest") / PICO,
            rows=int(_number(row, "row_count")),
            since=_number(row, "since") or None,
        )
    oldest = min((entry.since for entry in entries.values() if entry.since is not None), default=None)
    counters = Counters(
        taken_at=taken_at,
        server_now=instruments.now,
        server_started_at=instruments.started_at,
        reset_at=instruments.started_at if oldest is None else datetime.fromtimestamp(oldest, UTC),
        evicted=None,
        system_id=instruments.system_id,
        entries=entries,
    )
    return Reading(counters=counters, names=names)


async def fetch_texts(
    db: MySqlReadOnly, reading: Reading, keys: Sequence[StatementKey]
) -> dict[StatementKey, DigestText]:
    """Read the texts of some shapes; those that are gone are missing in the answer."""
    digests = sorted({reading.names[key][1] for key in keys if key in reading.names and key != OVERFLOW})
    if not digests:
        return {}
    histogram = ", QUANTILE_95 AS p95, QUANTILE_99 AS p99" if db.flavor == "mysql" else ""
    rows = await db.fetch(
        f"""SELECT {OWN_MARK} SCHEMA_NAME AS schema_name, DIGEST AS digest, LEFT(DIGEST_TEXT, {_TEXT_CHARS}) AS text,
          COUNT_STAR AS calls, SUM_ROWS_EXAMINED AS examined, SUM_NO_INDEX_USED AS no_index,
          SUM_CREATED_TMP_DISK_TABLES AS tmp_disk, SUM_ERRORS AS errors{histogram}
        FROM {_TABLE} WHERE DIGEST IN ({", ".join(["%s"] * len(digests))})""",
        digests,
    )
    wanted = set(keys)
    texts: dict[StatementKey, DigestText] = {}
    for row in rows:
        schema = None if row["schema_name"] is None else str(row["schema_name"])
        key = make_key(schema, str(row["digest"]))
        if key in wanted:
            texts[key] = _read_text(row, schema)
    return texts


async def fetch_without_digest(db: MySqlReadOnly) -> tuple[int, float]:
    """Executions that the server counts but keeps no digest of, and their seconds, since it started."""
    if db.flavor != "mariadb":
        return 0, 0.0
    row = await db.fetch_one(_WITHOUT_DIGEST)
    return int(_number(row, "calls")), _number(row, "total") / PICO


def make_key(schema: str | None, digest: str) -> StatementKey:
    """Name a shape as the Postgres tools name theirs; ``digest`` is the server's, in hexadecimal digits."""
    bits = int(digest[:16], 16)
    return StatementKey(
        userid=0, dbid=schema_id(schema), toplevel=True, queryid=bits - 2**64 if bits >= 2**63 else bits
    )


def schema_id(schema: str | None) -> int:
    """A number for a schema's name, the same on every server and at any time; 0 for none."""
    return 0 if schema is None else int.from_bytes(hashlib.sha256(schema.encode()).digest()[:8]) >> 1


def _read_text(row: Row, schema: str | None) -> DigestText:
    calls = max(1, int(_number(row, "calls")))
    return DigestText(
        sql=str(row["text"] or ""),
        schema=schema or "",
        calls=calls,
        rows_examined=int(_number(row, "examined")),
        no_index_share=min(1.0, _number(row, "no_index") / calls),
        tmp_disk_share=min(1.0, _number(row, "tmp_disk") / calls),
        error_share=min(1.0, _number(row, "errors") / calls),
        p95_s=_number(row, "p95") / PICO if "p95" in row else None,
        p99_s=_number(row, "p99") / PICO if "p99" in row else None,
    )


def _number(row: Row | None, name: str) -> float:
    """A number of any of the driver's types; 0 for NULL and for no row."""
    value = None if row is None else row[name]
    return float(str(value)) if value is not None else 0.0
