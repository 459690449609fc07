"""The implementations that the suite is run on. Another database is one more line in ``BACKENDS``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """``build_url`` names a fresh, empty database; ``run_sql`` changes it behind the Store's back."""

    name: str
    build_url: Callable[[Path], str]
    run_sql: Callable[[str, str], None]


def _run_sqlite(url: str, sql: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)) as connection:
        connection.execute(sql)
        connection.commit()


BACKENDS = (Backend(name="sqlite", build_url=lambda folder: f"sqlite:///{folder}/hermod.db", run_sql=_run_sqlite),)
