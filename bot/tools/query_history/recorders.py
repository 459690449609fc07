"""Who takes a reading of which kind of database. Other kinds have no counters of their statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agent_core.context import Clock
from bot.storage.snapshots import HistoryStore
from bot.tools.query_history.mysql_reading import record_mysql
from bot.tools.query_history.reading import Reading, record_postgres
from bot.tools.targets import Engine, Target


class Recorder(Protocol):
    """Takes one reading of a database's statement counters and stores it; see ``record_postgres``."""

    async def __call__(self, target: Target, store: HistoryStore, clock: Clock, *, also: Sequence[str] = ()) -> Reading:
        """Read and store once."""
        ...


RECORDERS: Mapping[Engine, Recorder] = {"postgresql": record_postgres, "mysql": record_mysql}
"""By the kind of target."""
