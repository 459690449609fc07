"""Take one reading of a MySQL or MariaDB server's statement digests, and learn the texts of shapes that are new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_core.context import Clock
from bot.storage.snapshots import HistoryStore, Statement
from bot.tools.mysql.connection import open_mysql
from bot.tools.mysql.digests import DigestText, fetch_instruments, fetch_reading, fetch_texts
from bot.tools.mysql.slow_queries import is_own
from bot.tools.query_history.reading import TEXTS_A_READING, Reading, find_unknown, learn
from bot.tools.slow_logs.mysql_text import fingerprint_mysql, redact_mysql
from bot.tools.slow_queries.counters import StatementKey, write_key
from bot.tools.slow_queries.history import save_reading
from bot.tools.targets import Target


async def record_mysql(target: Target, store: HistoryStore, clock: Clock, *, also: Sequence[str] = ()) -> Reading:
    """Read the digests of a MySQL or MariaDB target once, and store the reading; see ``record_postgres``.

    Raises:
        ToolFailed: as for ``read_mysql_slow_queries``.
        StoreError: the storage cannot be used.
    """
    unknown: dict[str, set[StatementKey]] = {}
    async with open_mysql(target) as db:
        read = await fetch_reading(db, await fetch_instruments(db), taken_at=clock.now())
        for name in (target.name, *also):
            await save_reading(store, name, read.counters)
            unknown[name] = await find_unknown(store, name, read.counters)
        keys = list(set().union(*unknown.values()))[:TEXTS_A_READING]
        texts = await fetch_texts(db, read, keys)
    learned = await learn(store, unknown, texts, _build_statements, clock)
    return Reading(
        counters=read.counters, engine=db.flavor, version=db.version, database=target.database, learned=learned
    )


def _build_statements(texts: Mapping[StatementKey, DigestText]) -> list[Statement]:
    """Turn texts as the server has them into what is stored. Whose statements these are, digests do not tell."""
    return [
        Statement(
            key=write_key(key),
            fingerprint=fingerprint_mysql(text.sql),
            sql=redact_mysql(text.sql),
            db=text.schema,
            user="",
            own=is_own(text.sql),
        )
        for key, text in texts.items()
    ]
