"""``running_queries`` on MySQL and MariaDB, and the look-up of one session there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bot.tools.activity.answer import RunningQueries
from bot.tools.activity.mysql_sessions import OWN_PROGRAM, by_pid, fetch_activity
from bot.tools.activity.running import build_running, select_running
from bot.tools.activity.wording import fit_name, say_seconds
from bot.tools.mysql.connection import open_mysql
from bot.tools.slow_logs.mysql_text import redact_mysql
from bot.tools.slow_queries.redact_sql import shorten
from bot.tools.targets import Target

if TYPE_CHECKING:
    from bot.tools.activity.ending import Ending, Found

_LINES: Mapping[str, str] = {"cancel_query": "KILL QUERY", "terminate_session": "KILL"}
_QUERY_CHARS = 300


async def read_mysql_running(where: Target, *, min_seconds: float, include_idle_in_tx: bool) -> RunningQueries:
    """Read what runs at this moment; see ``running.read_running_queries``.

    A transaction is seen from its first statement on InnoDB, not from BEGIN on.
    """
    async with open_mysql(where) as db:
        activity = await fetch_activity(db)
        version, flavor = db.version, db.flavor
    busy = [(s, 0) for s in activity.sessions if s.state == "active" or s.is_idle_in_transaction]
    source = "information_schema.PROCESSLIST" if flavor == "mariadb" else "performance_schema.threads"
    return await build_running(
        where, select_running(busy, min_seconds=min_seconds, include_idle_in_tx=include_idle_in_tx),
        engine=flavor, version=version, source=f"{source}, information_schema.INNODB_TRX",
        reasons=activity.lacks, hidden=activity.hidden, redact=redact_mysql,
    )  # fmt: skip


async def look_up_mysql(where: Target, ending: Ending, pid: int) -> Found | None:
    """Find one session; None when there is none with this number, or the account may not see it."""
    from bot.tools.activity.ending import Found

    async with open_mysql(where) as db:
        session = by_pid(await fetch_activity(db)).get(pid)
    if session is None:
        return None
    age_s = session.query_s if session.state == "active" else session.idle_s
    parts = [f"user {fit_name(session.user)}"]
    parts += [f"{word} {fit_name(value)}" for word, value in (("app", session.app), ("database", session.db)) if value]
    parts.append(f"{session.state} for {say_seconds(age_s)}")
    if session.query:
        verb = "executing" if session.state == "active" else "last statement"
        parts.append(f"{verb}: {shorten(redact_mysql(session.query), _QUERY_CHARS)}")
    return Found(
        said=", ".join(parts),
        query_id=session.query_id,
        backend_start=None,
        line=f"{_LINES[ending]} {pid}; (numbers are not given out again before the server restarts)",
        own=session.app == OWN_PROGRAM,
        checks_start=False,
    )
