"""Take one reading of a database's statement counters, and learn the texts of entries that are new.

The numbers are read without texts, which cost about nine times as much; a text is fetched once, when its entry first
shows up, and only its redacted form is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_core.context import Clock
from bot.storage.snapshots import HistoryStore, Statement
from bot.tools.slow_queries.connection import ReadOnly, open_read_only
from bot.tools.slow_queries.counters import Counters, StatementKey, parse_key, write_key
from bot.tools.slow_queries.history import save_reading
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql
from bot.tools.slow_queries.statements import (
    Extension,
    Server,
    StatementText,
    fetch_counters,
    fetch_extension,
    fetch_server,
    fetch_texts,
)
from bot.tools.targets import Target

TEXTS_A_READING = 1_000
"""How many new texts one reading learns at most; the next one learns more."""

MOST_UNKNOWN = 20_000
"""Most keys that are looked through for texts to learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read, and of which server. ``learned``: how many new texts were stored."""

    counters: Counters
    engine: str
    version: str
    database: str
    learned: int = 0


async def record_postgres(target: Target, store: HistoryStore, clock: Clock, *, also: Sequence[str] = ()) -> Reading:
    """Read pg_stat_statements of a Postgres target once, and store the reading.

    Args:
        target: where to read.
        store: where it goes.
        clock: the time of the reading.
        also: names of other targets on the same server, seen by the same role; the reading counts for them, too.

    Raises:
        ToolFailed: as for ``read_slow_queries``.
        StoreError: the storage cannot be used.
    """
    async with open_read_only(target) as db:
        extension = await fetch_extension(db)
        server = await fetch_server(db)
        counters = await fetch_counters(db, extension, server, taken_at=clock.now())
        learned = 0
        for name in (target.name, *also):
            await save_reading(store, name, counters)
            learned += await _learn(db, extension, server, counters, store, name)
    return Reading(
        counters=counters, engine="postgresql", version=db.version, database=server.database, learned=learned
    )


async def _learn(
    db: ReadOnly, extension: Extension, server: Server, counters: Counters, store: HistoryStore, name: str
) -> int:
    """Fetch texts that are not known, of entries that the server still has."""
    unknown = await store.list_unknown(name, limit=MOST_UNKNOWN)
    keys = [key for text in unknown if (key := parse_key(text)) in counters.entries][:TEXTS_A_READING]
    if not keys:
        return 0
    texts = await fetch_texts(db, extension, server, keys)
    statements = await asyncio.to_thread(build_statements, {key: texts[key] for key in keys if key in texts})
    await store.save_statements(name, statements)
    return len(statements)


def build_statements(texts: Mapping[StatementKey, StatementText]) -> list[Statement]:
    """Turn texts as the server has them into what is stored: without literals and comments."""
    return [
        Statement(
            key=write_key(key),
            fingerprint=fingerprint_sql(text.sql),
            sql=redact_sql(text.sql),
            db=text.db,
            user=text.user,
            own=text.own,
        )
        for key, text in texts.items()
    ]
