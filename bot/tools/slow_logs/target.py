"""Slow logs as targets: the folder of a ``slowlog:///`` URL, read in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from agent_core.errors import ToolFailed
from bot.tools.slow_logs.answer import OrderBy, SlowLog
from bot.tools.slow_logs.folder import OpenLog, open_logs
from bot.tools.slow_logs.formats import AnyFormat
from bot.tools.slow_logs.process import cut_to, read_in_process
from bot.tools.slow_logs.worker import Request
from bot.tools.slow_queries.time_range import TimeRange
from bot.tools.targets import Target

TARGET_DEADLINE_S = 15.0
"""How long ``get_slow_queries`` reads, which people expect to be quick."""

_ROWS_CHARS = 16_000
_FORMATS: Sequence[AnyFormat] = ("auto", "stderr", "csvlog", "jsonlog", "mysql")


async def read_target_log(
    target: Target,
    *,
    asked: TimeRange | None,
    threshold_s: float,
    order_by: OrderBy,
    limit: int,
    path: str | None = None,
    format: AnyFormat = "auto",
    prefix: str | None = None,
    deadline_s: float = TARGET_DEADLINE_S,
) -> SlowLog:
    """Read the logs of a target with a ``slowlog:///`` URL; its ``format``, ``prefix`` and ``zone`` are defaults.

    Raises:
        ToolFailed: with one of the codes in ``docs/slow-logs.md``.
    """
    said = target.options.get("format", "auto")
    chosen = next((known for known in _FORMATS if known == said), None)
    if chosen is None:
        raise ToolFailed(
            f"target {target.name!r}: format={said[:40]} is not known",
            code="log_format_unknown",
            fix=f"a person has to put one of {', '.join(_FORMATS)} into the target's url",
        )
    since = None if asked is None else asked.start.timestamp()
    return await read_open_logs(
        open_logs(Path(target.database), path, since=since or 0.0),
        Request(
            target=target.name,
            files=(),
            format=format if format != "auto" else chosen,
            prefix=prefix or target.options.get("prefix"),
            zone=target.options.get("zone"),
            since=since,
            until=None if asked is None else asked.end.timestamp(),
            threshold_s=threshold_s,
            order_by=order_by,
            limit=limit,
            deadline_s=deadline_s,
        ),
    )


async def read_open_logs(opening: AbstractContextManager[Sequence[OpenLog]], request: Request) -> SlowLog:
    """Open logs, read them as ``request`` says, and close them; the answer fits what a model reads.

    Raises:
        ToolFailed: as the opening and ``read_in_process``.
    """
    with ExitStack() as stack:
        logs = await asyncio.to_thread(stack.enter_context, opening)
        files = tuple((log.name, log.descriptor, log.size_bytes) for log in logs)
        answer = await read_in_process(replace(request, files=files))
    return cut_to(answer, _ROWS_CHARS)
