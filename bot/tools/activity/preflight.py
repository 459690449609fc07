"""``preflight``: what Hermod can see on a target, and the exact lines for what it cannot."""

from __future__ import annotations

from dataclasses import replace

from agent_core.context import Clock
from bot.tools.activity.answer import Preflight
from bot.tools.activity.postgres_preflight import read_postgres_preflight
from bot.tools.targets import Targets

TOOL = "preflight"


async def read_preflight(targets: Targets, clock: Clock, *, target: str | None = None) -> Preflight:
    """Look at rights, extensions and settings; nothing that is missing makes it fail.

    Args:
        targets: the configured ones.
        clock: for ``took_ms``.
        target: which one; None for the only one.

    Raises:
        ToolFailed: ``unknown_target``, ``unsupported``, or why no connection can be made.
    """
    began = clock.monotonic()
    where = targets.resolve(target)
    where.require("postgresql", "mysql", tool=TOOL)
    if where.engine == "mysql":
        from bot.tools.activity.mysql_preflight import read_mysql_preflight

        answer = await read_mysql_preflight(where)
    else:
        answer = await read_postgres_preflight(where)
    return replace(answer, took_ms=round((clock.monotonic() - began) * 1000, 1))
