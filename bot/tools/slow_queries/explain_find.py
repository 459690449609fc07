"""The text behind a fingerprint, from the live statistics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.slow_queries.statements import Extension, fetch_extension

# As much of a text as the fingerprints of get_slow_queries are made of.
_TEXT_CHARS = 8_000
_MOST_TEXTS = 20_000


async def find_statement(db: ReadOnly, fingerprint: str) -> str:
    """Return the statement of this shape with the most total time in the connected database.

    Raises:
        ToolFailed: ``unknown_fingerprint`` when the server holds none, and what ``fetch_extension`` raises.
    """
    extension = await fetch_extension(db)
    rows = await db.fetch(_build_query(extension), (_TEXT_CHARS, _MOST_TEXTS))
    wanted = fingerprint.strip().lower()
    texts = [(str(row["queryid"]), str(row["text"])) for row in rows]
    queryid = await asyncio.to_thread(_find_first, texts, wanted)
    if queryid is None:
        raise ToolFailed(
            f"target {db.target.name!r}: no statement with the fingerprint {wanted[:40]!r} is in the statistics of "
            f"this database ({len(texts)} were looked at)",
            code="unknown_fingerprint",
            fix="take a fingerprint from a fresh answer of get_slow_queries, or pass the statement itself as sql",
        )
    schema = quote_identifier(extension.schema)
    row = await db.fetch_one(
        f"select {OWN_MARK} s.query from {schema}.pg_stat_statements s "
        "where s.queryid = %s and s.dbid = (select oid from pg_catalog.pg_database "
        "where datname = pg_catalog.current_database()) limit 1",
        (int(queryid),),
    )
    if row is None:
        raise ToolFailed(
            f"target {db.target.name!r}: the statement was thrown out of the statistics just now",
            code="unknown_fingerprint",
            fix="pass the statement itself as sql",
            retryable=True,
        )
    return str(row["query"])


def quote_identifier(name: str) -> str:
    """A name in double quotes, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _find_first(texts: Iterable[tuple[str, str]], wanted: str) -> str | None:
    return next((queryid for queryid, text in texts if fingerprint_sql(text) == wanted), None)


def _build_query(extension: Extension) -> str:
    total = "total_exec_time" if "total_exec_time" in extension.columns else "total_time"
    return (
        f"select {OWN_MARK} s.queryid, pg_catalog.left(min(s.query), %s) as text "
        f"from {quote_identifier(extension.schema)}.pg_stat_statements s "
        "where s.dbid = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()) "
        "and s.queryid is not null and s.query <> '<insufficient privilege>' "
        f"and pg_catalog.strpos(s.query, '{OWN_MARK}') = 0 "
        f"group by s.queryid order by sum(s.{total}) desc limit %s"
    )
