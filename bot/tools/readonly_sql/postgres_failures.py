"""What went wrong with a person's own statement, without the data that the server's messages may hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.answer import LONGEST_TIMEOUT_S
from bot.tools.slow_queries.failures import explain_error, quote_name
from bot.tools.slow_queries.redact_sql import redact_message
from bot.tools.targets import Target

if TYPE_CHECKING:
    from psycopg import Error

_RELATION = re.compile(r"permission denied for (?:table|view|materialized view|foreign table|relation|sequence) (\S+)")

# SQLSTATE classes whose messages are about the statement that was passed in.
_ABOUT_STATEMENT = ("42", "0A", "3F", "26", "34")
_ABOUT_VALUES = ("22", "21", "54", "P0", "XX", "53", "58", "HV")
_FIXES = {
    "42P01": "check the table's name, and write its schema in front of it",
    "42703": "check the column's name",
    "42883": "check the function's name and its arguments' types",
    "42P18": "write the parameter's type behind it, for example $1::text",
    "42P02": "write $1, $2, ... and pass their values in params",
}


def explain_slowness(target: Target) -> ToolFailed:
    """The statement did not end in time."""
    return ToolFailed(
        f"target {target.name!r}: the statement took too long and was ended on the server",
        code="statement_timeout",
        fix=f"filter or aggregate more, or raise timeout_s (up to {LONGEST_TIMEOUT_S:g}); explain_query says why it is "
        "slow",
    )


def explain_query_error(error: Error, target: Target, sql: str, *, offset: int) -> ToolFailed:
    """Turn the server's error into ours; ``offset`` characters stood before the statement."""
    state = error.sqlstate or ""
    primary = error.diag.message_primary or ""
    said = redact_message(primary, sql)
    if state == "57014":
        return explain_slowness(target)
    if state == "42501":
        return _explain_right(primary, target)
    if state == "42601" and "multiple commands" in primary:
        return ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="pass one statement at a time",
        )
    if state == "25006":
        return ToolFailed(
            f"target {target.name!r}: the statement would have written something, and the server stopped it",
            code="not_read_only",
            fix="leave out what writes",
        )
    if not state.startswith(_ABOUT_STATEMENT + _ABOUT_VALUES):
        return explain_error(error, target)
    code, doing = (
        ("parse_failed", "cannot be run") if state.startswith(_ABOUT_STATEMENT) else ("query_failed", "failed")
    )
    place = _place(error.diag.statement_position, sql, offset)
    return ToolFailed(
        f"target {target.name!r}: the statement {doing}: {said}{place}",
        code=code,
        fix=_FIXES.get(state, "correct the statement"),
    )


def _explain_right(primary: str, target: Target) -> ToolFailed:
    match = _RELATION.search(primary)
    role = quote_name(target.user) if target.user else "the role"
    what = match[1] if match else "something that the statement needs"
    return ToolFailed(
        f"target {target.name!r}: role {role} has no right on {what}",
        code="insufficient_privilege",
        fix=f"GRANT SELECT ON {what} TO {role};" if match else "ask the database's administrator",
    )


def _place(position: str | None, sql: str, offset: int) -> str:
    if position is None or not position.isdigit():
        return ""
    at = int(position) - offset
    if not 1 <= at <= len(sql) + 1:
        return ""
    line = sql.count("\n", 0, at - 1) + 1
    return f" (line {line}, column {at - (sql.rfind(chr(10), 0, at - 1) + 1)} of the statement)"
