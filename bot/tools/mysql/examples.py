"""A real execution of a statement shape, for its values: the servers plan no statement whose values are not known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from bot.tools.mysql.connection import OWN_MARK, MySqlReadOnly
from bot.tools.slow_logs.mysql_text import fingerprint_mysql

# MySQL keeps an execution with each digest, MariaDB only those in the ring of single executions.
_SHAPES_MYSQL = f"""SELECT {OWN_MARK} DIGEST AS digest, SCHEMA_NAME AS schema_name, LEFT(DIGEST_TEXT, 8000) AS text
FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST IS NOT NULL"""
_SHAPES_MARIADB = f"""SELECT {OWN_MARK} DIGEST AS digest, CURRENT_SCHEMA AS schema_name,
  MAX(LEFT(DIGEST_TEXT, 8000)) AS text
FROM performance_schema.events_statements_history_long WHERE DIGEST IS NOT NULL GROUP BY DIGEST, CURRENT_SCHEMA"""
_SAMPLE_MYSQL = f"""SELECT {OWN_MARK} QUERY_SAMPLE_TEXT AS text,
  LENGTH(QUERY_SAMPLE_TEXT) >= @@performance_schema_max_sql_text_length AS cut
FROM performance_schema.events_statements_summary_by_digest
WHERE DIGEST = %s AND SCHEMA_NAME <=> %s AND QUERY_SAMPLE_TEXT IS NOT NULL"""
_SAMPLE_MARIADB = f"""SELECT {OWN_MARK} SQL_TEXT AS text,
  LENGTH(SQL_TEXT) >= @@performance_schema_max_sql_text_length AS cut
FROM performance_schema.events_statements_history_long
WHERE DIGEST = %s AND CURRENT_SCHEMA <=> %s AND SQL_TEXT IS NOT NULL ORDER BY cut, TIMER_WAIT DESC LIMIT 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The slowest kept execution of a shape.

    Args:
        sql: with its values; for the planner only, never to be shown.
        schema: the session's default database, empty for none.
        cut: the server kept only its beginning.
    """

    sql: str = field(repr=False)
    schema: str
    cut: bool


async def find_example(db: MySqlReadOnly, fingerprint: str) -> Example | None:
    """Find an execution of the shape with this fingerprint, in the target's database if it names one.

    Raises:
        ToolFailed: ``insufficient_privilege`` and the like.
    """
    mysql = db.flavor == "mysql"
    rows = await db.fetch(_SHAPES_MYSQL if mysql else _SHAPES_MARIADB)
    shapes = [
        (str(row["digest"]), None if row["schema_name"] is None else str(row["schema_name"]), str(row["text"]))
        for row in rows
        if not db.target.database or row["schema_name"] == db.target.database
    ]
    found = await asyncio.to_thread(_match, shapes, fingerprint)
    if found is None:
        return None
    digest, schema = found
    row = await db.fetch_one(_SAMPLE_MYSQL if mysql else _SAMPLE_MARIADB, [digest, schema])
    return None if row is None else Example(sql=str(row["text"]), schema=schema or "", cut=bool(row["cut"]))


def _match(shapes: Sequence[tuple[str, str | None, str]], fingerprint: str) -> tuple[str, str | None] | None:
    return next(((digest, schema) for digest, schema, text in shapes if fingerprint_mysql(text) == fingerprint), None)
