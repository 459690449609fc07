"""``analyze_slow_log``, and slow logs as targets of ``get_slow_queries``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, Field

from agent_core.context import Clock, RunContext
from agent_core.errors import ModelRetry, ToolFailed
from agent_core.llm.types import ToolExample
from agent_core.tools.registry import ToolRegistry
from bot.tools.python_sandbox.tool import AttachedFiles, NoAttachedFiles
from bot.tools.python_sandbox.uploads import Uploads
from bot.tools.slow_logs.answer import OrderBy, SlowLog
from bot.tools.slow_logs.folder import open_upload
from bot.tools.slow_logs.formats import AnyFormat
from bot.tools.slow_logs.process import GRACE_S
from bot.tools.slow_logs.target import read_open_logs, read_target_log
from bot.tools.slow_logs.worker import Request
from bot.tools.slow_queries.time_range import FORMS, TimeRange, parse_time_range
from bot.tools.targets import Target, Targets

DEADLINE_S = 60.0
"""How long one call reads; what it has until then is the answer, and it says so."""

DESCRIPTION = """\
Sum up a slow-query log of Postgres (stderr, csvlog, jsonlog, auto_explain), MySQL or MariaDB by statement shape. Use
it for a log file that somebody attached in this thread ("analyse this slow log", "what is slow in this file",
"分析慢日志"), and for logs in the folder of a slowlog target.

- Attached file: pass its name as path and leave target out. Without path and target the one attached file is read.
- Target: pass target, and path relative to its folder, or no path for all of its logs.
- time_range is of the log's own times; leave it out for the whole log. An old log needs an interval, not last_2h.

`duration` (seconds) is the longest single execution of a shape; threshold is compared with it. Percentiles are within
0.5 %. `damaged` counts lines that could not be read, and `coverage.reasons` say what is missing: tell the person.

Example: {"path": "postgresql.log", "threshold": 0.5, "order_by": "total"}"""


class SlowLogArguments(BaseModel):
    """Arguments of ``analyze_slow_log``."""

    path: Annotated[
        str | None,
        Field(max_length=500, description="Name of an attached file, or a path inside the folder of target."),
    ] = None
    target: Annotated[str | None, Field(description="Name of a slowlog target. Leave it out for attached files.")] = (
        None
    )
    format: Annotated[AnyFormat, Field(description="auto looks at the file.")] = "auto"
    log_line_prefix: Annotated[
        str | None,
        Field(max_length=200, description="Of a plain Postgres log, as SHOW log_line_prefix prints it; else guessed."),
    ] = None
    time_range: Annotated[
        str | None,
        Field(
            max_length=200,
            description=f"The whole log when left out; else one of: {FORMS}",
            json_schema_extra={"format": "time-range"},
        ),
    ] = None
    threshold: Annotated[
        float,
        Field(
            ge=0,
            le=86_400,
            allow_inf_nan=False,
            description="Shapes of which no execution took this many seconds are left out.",
            json_schema_extra={"format": "duration-s"},
        ),
    ] = 0.0
    order_by: Annotated[OrderBy, Field(description="total: time of all executions together.")] = "total"
    limit: Annotated[int, Field(ge=1, le=100, description="Most rows to return.")] = 20


class KeptUploads(Protocol):
    """Where fetched files of threads lie on this disk."""

    def find_path(self, thread_key: str, name: str) -> Path | None:
        """Return the place of an attached file that was fetched. It blocks."""
        ...


class ThreadUploads:
    """The uploads of the sandbox's folders."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    def find_path(self, thread_key: str, name: str) -> Path | None:
        """Return the place of an attached file that was fetched. It blocks."""
        for upload in self._uploads.list(thread_key):
            if upload.name == name:
                return self._uploads.find(thread_key, upload)
        return None


@dataclass(slots=True, kw_only=True)
class SlowLogTool:
    """Answers ``analyze_slow_log``; one instance serves all threads. At most two logs are read at the same time."""

    targets: Targets
    clock: Clock
    attached: AttachedFiles = field(default_factory=NoAttachedFiles)
    uploads: KeptUploads | None = None
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))

    async def analyze_slow_log(self, ctx: RunContext, arguments: SlowLogArguments) -> SlowLog:
        """Read one attached file, or logs of a target.

        Raises:
            ModelRetry: neither a file nor a target can be told from the arguments.
            ToolFailed: with one of the codes in ``docs/slow-logs.md``.
        """
        asked = None if arguments.time_range is None else parse_time_range(arguments.time_range, now=self.clock.now())
        async with self._places:
            if arguments.target is None and (name := await self._attached_name(ctx, arguments.path)) is not None:
                return await self._read_attached(ctx, name, arguments, asked)
            target = self._resolve(arguments)
            return await read_target_log(
                target,
                path=arguments.path,
                asked=asked,
                threshold_s=arguments.threshold,
                order_by=arguments.order_by,
                limit=arguments.limit,
                format=arguments.format,
                prefix=arguments.log_line_prefix,
                deadline_s=min(DEADLINE_S, max(1.0, ctx.remaining_s() - GRACE_S)),
            )

    async def _attached_name(self, ctx: RunContext, path: str | None) -> str | None:
        """Which attached file is meant; None when none is, and the targets have to be looked at."""
        fetched = await self.attached.fetch(ctx.thread_id, None if path is None else [path])
        if fetched.unknown:
            return None
        for missing in fetched.missing:
            if path is not None or not fetched.names:
                raise ToolFailed(
                    f"the attached file {missing.name!r} is not here: {missing.reason}",
                    code="file_missing",
                    fix="attach a smaller part of the log, gzip it, or run `hermod slowlog FILE` where the log is",
                )
        if len(fetched.names) > 1:
            raise ModelRetry(f"several files are attached; pass path as one of: {', '.join(fetched.names)}")
        return fetched.names[0] if fetched.names else None

    async def _read_attached(
        self, ctx: RunContext, name: str, arguments: SlowLogArguments, asked: TimeRange | None
    ) -> SlowLog:
        place = None if self.uploads is None else await asyncio.to_thread(self.uploads.find_path, ctx.thread_id, name)
        if place is None:
            raise ToolFailed(f"the attached file {name!r} is gone", code="file_missing", fix="attach it again")
        return await read_open_logs(
            open_upload(name, place),
            Request(
                target=name,
                files=(),
                format=arguments.format,
                prefix=arguments.log_line_prefix,
                threshold_s=arguments.threshold,
                order_by=arguments.order_by,
                limit=arguments.limit,
                since=None if asked is None else asked.start.timestamp(),
                until=None if asked is None else asked.end.timestamp(),
                deadline_s=min(DEADLINE_S, max(1.0, ctx.remaining_s() - GRACE_S)),
            ),
        )

    def _resolve(self, arguments: SlowLogArguments) -> Target:
        logs = [target for target in self.targets.values() if target.engine == "slowlog"]
        if arguments.target is None and len(logs) == 1:
            return logs[0]
        if arguments.target is None:
            known = ", ".join(sorted(target.name for target in logs)) or "none is configured"
            what = "no file is attached in this thread" if arguments.path is None else "no attached file has this name"
            raise ModelRetry(f"{what}; attach a log, or pass target as the name of a slowlog target: {known}")
        target = self.targets.resolve(arguments.target)
        target.require("slowlog", tool="analyze_slow_log")
        return target


def register_slow_log_tool(
    registry: ToolRegistry,
    targets: Targets,
    clock: Clock,
    *,
    attached: AttachedFiles | None = None,
    uploads: Uploads | None = None,
) -> SlowLogTool:
    """Register ``analyze_slow_log``.

    Args:
        registry: where it goes.
        targets: those with a ``slowlog:///`` URL can be read.
        clock: the time that ranges are relative to.
        attached, uploads: fetch attached files, and tell where they are; None where there are none.

    Raises:
        ConfigError: the name is taken.
    """
    tool = SlowLogTool(
        targets=targets,
        clock=clock,
        attached=attached or NoAttachedFiles(),
        uploads=None if uploads is None else ThreadUploads(uploads),
    )
    registry.register(
        tool.analyze_slow_log,
        description=DESCRIPTION,
        arguments=SlowLogArguments,
        timeout_s=DEADLINE_S + GRACE_S + 5,
        examples=(
            ToolExample(question="analyse the attached slow log", arguments={}),
            ToolExample(
                question="which statements in postgresql.log took more than 2 seconds?",
                arguments={"path": "postgresql.log", "threshold": 2.0},
            ),
            ToolExample(question="分析附件里的慢查询日志", arguments={}),
        ),
    )
    return tool
