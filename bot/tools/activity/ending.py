"""``cancel_query`` and ``terminate_session``: what they would end. They end nothing.

Ending somebody's work needs a person's approval that is bound to this very session, and there are no approvals in
this release. So both look the session up, compare it with the one that was meant (numbers are given out again), say
what would have been ended, and answer ``approval_required``. Nothing in here can end anything: all that is ever sent
to the server are the queries of ``sessions`` and ``mysql_sessions``, in a READ ONLY transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from agent_core.context import RunContext
from agent_core.errors import ToolFailed
from agent_core.llm.types import ToolCall
from agent_core.tools.approval import Decision
from agent_core.tools.base import Tool
from bot.tools.activity.sessions import Session, fetch_session
from bot.tools.activity.wording import fit_name, say_seconds
from bot.tools.slow_queries.connection import OWN_APPLICATION, open_read_only
from bot.tools.slow_queries.redact_sql import redact_sql, shorten
from bot.tools.targets import Target, Targets

Ending = Literal["cancel_query", "terminate_session"]

_WHAT: Mapping[Ending, str] = {
    "cancel_query": "cancel the statement of",
    "terminate_session": "end, with its transaction,",
}
_LINE: Mapping[Ending, str] = {"cancel_query": "pg_cancel_backend", "terminate_session": "pg_terminate_backend"}
_QUERY_CHARS = 300
_REASON_CHARS = 200
NOT_AVAILABLE = "approval is not available in this release, so nothing was ended"


class EndingArguments(BaseModel):
    """Arguments of ``cancel_query`` and ``terminate_session``."""

    pid: Annotated[int, Field(gt=0, le=2**63 - 1, description="The session's number, as running_queries gives it.")]
    expected_query_id: Annotated[
        str | None, Field(max_length=80, description="query_id of that session, from the same answer.")
    ] = None
    expected_backend_start: Annotated[
        str | None, Field(max_length=40, description="backend_start of that session, from the same answer.")
    ] = None
    reason: Annotated[str, Field(max_length=500, description="Why, in a sentence; for the person who approves.")] = ""
    target: Annotated[
        str | None, Field(description="Name of the database. Leave it out when only one is configured.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A session that was looked up.

    Args:
        said: what it is, in words, without literals.
        query_id, backend_start: its identity, as far as the server tells.
        line: what a person can run to end it, safe against a number that was given out again.
        own: it is one of Hermod's.
        checks_start: the server tells since when a session exists.
    """

    said: str
    query_id: str | None
    backend_start: str | None
    line: str
    own: bool = False
    checks_start: bool = True


async def explain_ending(targets: Targets, ending: Ending, arguments: EndingArguments) -> ToolFailed:
    """Say what would have been ended, and that it was not.

    Returns:
        The failure to raise: always ``approval_required``, also where the session is gone, is another one, or cannot
        be looked up.

    Raises:
        ToolFailed: ``unknown_target`` or ``unsupported``.
    """
    where = targets.resolve(arguments.target)
    where.require("postgresql", "mysql", tool=ending)
    try:
        found = await _look_up(where, ending, arguments.pid)
    except ToolFailed as failure:
        return ToolFailed(
            f"session {arguments.pid} could not be looked up ({failure.message}); {NOT_AVAILABLE}",
            code="approval_required",
            fix=failure.fix,
        )
    if found is None:
        return ToolFailed(
            f"there is no session {arguments.pid} on target {where.name!r} (any more); {NOT_AVAILABLE}",
            code="approval_required",
            fix="call running_queries for the sessions that there are now",
        )
    doubts = _compare(found, arguments)
    if doubts:
        identity = f"but it is not surely the session that was meant: {'; '.join(doubts)}"
    else:
        identity = "and it is the session that was meant"
    wish = f" Reason given: {shorten(' '.join(arguments.reason.split()), _REASON_CHARS)}." if arguments.reason else ""
    return ToolFailed(
        f"{ending} would {_WHAT[ending]} session {arguments.pid} of target {where.name!r} ({found.said}), {identity}; "
        f"{NOT_AVAILABLE}.{wish}",
        code="approval_required",
        fix="call running_queries again and compare before anybody ends it"
        if doubts
        else f"a person with the right to it can run: {found.line}",
    )


def _compare(found: Found, arguments: EndingArguments) -> list[str]:
    """Everything that speaks against this being the session that was meant."""
    doubts = []
    if found.own:
        doubts.append("it is one of Hermod's own")
    if found.checks_start:
        if arguments.expected_backend_start is None:
            doubts.append("expected_backend_start was not given")
        elif not _same_instant(arguments.expected_backend_start, found.backend_start):
            doubts.append(
                f"it began at {found.backend_start or 'a hidden time'}, "
                f"not at {shorten(arguments.expected_backend_start, 40)}"
            )
    if arguments.expected_query_id is None:
        if found.query_id is not None:
            doubts.append("expected_query_id was not given")
    elif arguments.expected_query_id != found.query_id:
        doubts.append(
            f"its query id is {found.query_id or 'not known'}, not {shorten(arguments.expected_query_id, 80)}: "
            "it executes something else by now"
        )
    return doubts


def _same_instant(expected: str, real: str | None) -> bool:
    instants = [_parse_instant(text) for text in (expected, real or "")]
    return instants[0] is not None and instants[0] == instants[1]


def _parse_instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant.tzinfo is not None else None


async def _look_up(where: Target, ending: Ending, pid: int) -> Found | None:
    if where.engine == "mysql":
        from bot.tools.activity.mysql_running import look_up_mysql

        return await look_up_mysql(where, ending, pid)
    if pid >= 2**31:
        return None
    async with open_read_only(where) as db:
        session = await fetch_session(db, pid)
    if session is None:
        return None
    return Found(
        said=_describe(session),
        query_id=session.query_id,
        backend_start=session.backend_start,
        line=f"SELECT {_LINE[ending]}(pid) FROM pg_stat_activity WHERE pid = {pid} "
        f"AND backend_start = '{session.backend_start}';",
        own=session.app == OWN_APPLICATION and session.user == where.user,
    )


def _describe(session: Session) -> str:
    parts = [f"user {fit_name(session.user)}" if session.user else session.kind]
    parts += [f"{word} {fit_name(value)}" for word, value in (("app", session.app), ("database", session.db)) if value]
    if session.hidden:
        parts.append("what it does is hidden from this role")
    elif session.state == "active":
        parts.append(f"active for {say_seconds(session.query_s)}")
    else:
        parts.append(f"{session.state or 'no state'} for {say_seconds(session.idle_s)}")
    if session.query and not session.hidden:
        verb = "executing" if session.state == "active" else "last statement"
        parts.append(f"{verb}: {shorten(redact_sql(session.query), _QUERY_CHARS)}")
    return ", ".join(parts)


class NoApprovals:
    """The approver of a release without approvals: it approves nothing.

    For the tools of this module it says what would have been ended; every other tool is told what the engine itself
    says where there is no approver.

    Args:
        targets: the configured databases.
    """

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def approve(self, ctx: RunContext, tool: Tool, call: ToolCall) -> Decision:
        """Refuse.

        Raises:
            ToolFailed: always; ``approval_required``, or what makes the call senseless (``unknown_target``).
        """
        for ending in _WHAT:
            if tool.name == ending and issubclass(tool.arguments, EndingArguments):
                arguments = tool.arguments.model_validate_json(call.arguments)
                raise await explain_ending(self._targets, ending, arguments)
        raise ToolFailed(
            f"{tool.name} has the effect {tool.effect.value} and needs a person's approval, which cannot be asked for "
            "here; nothing was run",
            code="approval_required",
            fix="a person has to do it, or approvals have to be set up",
        )
