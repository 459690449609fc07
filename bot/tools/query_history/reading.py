"""Take one reading of a database's statement counters, and learn the texts of entries that are new.

The numbers are read without texts, which cost about nine times as much; a text is fetched once, when its entry first
shows up, and only its redacted form is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent_core.context import Clock
from bot.storage.snapshots import HistoryStore, Statement
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.slow_queries.counters import Counters, StatementKey, parse_key, write_key
from bot.tools.slow_queries.history import save_reading
from bot.tools.slow_queries.redact_sql import fingerprint_sql, redact_sql
from bot.tools.slow_queries.statements import (
    StatementText,
    fetch_counters,
    fetch_extension,
    fetch_server,
    fetch_texts,
)
from bot.tools.targets import Target

TEXTS_A_READING = 1_000
"""How many new texts one reading learns at most; the next one learns more."""

LEARN_S = 2.0
"""How long a reading goes on learning texts once it has begun to."""

_MOST_UNKNOWN = 20_000
_TEXTS_AT_ONCE = 50

_T = TypeVar("_T")


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
    unknown: dict[str, set[StatementKey]] = {}
    texts: dict[StatementKey, StatementText] = {}
    async with open_read_only(target) as db:
        extension = await fetch_extension(db)
        server = await fetch_server(db)
        counters = await fetch_counters(db, extension, server, taken_at=clock.now())
        for name in (target.name, *also):
            await save_reading(store, name, counters)
            unknown[name] = await find_unknown(store, name, counters)
        keys = list(set().union(*unknown.values()))[:TEXTS_A_READING]
        if keys:
            found = await fetch_texts(db, extension, server, keys)
            texts = {key: found[key] for key in keys if key in found}
    # The connection is closed by now: redacting takes time, and the server need not wait for it.
    learned = await learn(store, unknown, texts, build_statements, clock)
    return Reading(
        counters=counters, engine="postgresql", version=db.version, database=server.database, learned=learned
    )


async def find_unknown(store: HistoryStore, name: str, counters: Counters) -> set[StatementKey]:
    """Find entries that the server still has and of which no text is stored."""
    keys = map(parse_key, await store.list_unknown(name, limit=_MOST_UNKNOWN))
    return {key for key in keys if key in counters.entries}


async def learn(
    store: HistoryStore,
    unknown: Mapping[str, Collection[StatementKey]],
    texts: Mapping[StatementKey, _T],
    build: Callable[[Mapping[StatementKey, _T]], Sequence[Statement]],
    clock: Clock,
) -> int:
    """Redact and store texts for the targets to which they are unknown, for at most ``LEARN_S``; return how many.

    What is left is learned by the next reading. A few at a time, so that whatever ends this loses little.
    """
    began, keys = clock.monotonic(), list(texts)
    learned = 0
    while keys and clock.monotonic() - began < LEARN_S:
        some, keys = keys[:_TEXTS_AT_ONCE], keys[_TEXTS_AT_ONCE:]
        statements = await asyncio.to_thread(build, {key: texts[key] for key in some})
        for name, missing in unknown.items():
            await store.save_statements(name, [one for one in statements if parse_key(one.key) in missing])
        learned += len(statements)
    return learned


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
