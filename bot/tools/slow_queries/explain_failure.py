"""Why a statement has no plan, in a code, a sentence and a remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.failures import explain_error, quote_name
from bot.tools.slow_queries.redact_sql import redact_message
from bot.tools.targets import Target

if TYPE_CHECKING:
    from psycopg import Error

_RELATION = re.compile(r"permission denied for (?:table|view|materialized view|foreign table|relation) (\S+)")

# SQLSTATE classes whose messages are about the statement that was passed in.
_STATEMENT_CLASSES = ("42", "22", "0A", "21", "3F")

_FIXES = {
    "42P01": "check the table's name, and write its schema in front of it",
    "42703": "check the column's name",
    "42P18": "write the parameter's type behind it, for example $1::text",
    "42725": "write the types of the parameters behind them, for example $1::timestamptz",
    "42883": "write the types of the parameters behind them, for example $1::integer, or check the function's name",
    "42P02": "write $1, $2, ... for values that are not known",
}
_FIX = (
    "correct the statement; a text from the statistics may have $1 where only a constant can stand: put a value "
    "there, or the type behind it ($1::interval)"
)


def explain_failure(error: Error, target: Target, statement: str, *, offset: int | None) -> ToolFailed:
    """Turn the server's refusal to plan into a ``ToolFailed``.

    Args:
        error: what psycopg raised.
        target: where.
        statement: as the person wrote it; values in the message stay out by it.
        offset: characters that were sent in front of it; None when the text was changed, so places mean nothing.
    """
    state = error.sqlstate or ""
    primary = error.diag.message_primary or ""
    if state == "42601" and "multiple commands" in primary:
        return ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="explain one statement at a time",
        )
    if state == "42501":
        return _explain_privilege(primary, target)
    if not state.startswith(_STATEMENT_CLASSES):
        return explain_error(error, target)
    place = "" if offset is None else _place(error.diag.statement_position, statement, offset)
    return ToolFailed(
        f"target {target.name!r}: the statement cannot be planned: {redact_message(primary, statement)}{place}",
        code="parse_failed",
        fix=_FIXES.get(state, _FIX),
    )


def find_place(error: Error, *, offset: int) -> int | None:
    """Where in the statement the server's complaint is, counted from 0; None when it named no place."""
    position = error.diag.statement_position
    at = int(position) - offset - 1 if position is not None and position.isdigit() else -1
    return at if at >= 0 else None


def _explain_privilege(primary: str, target: Target) -> ToolFailed:
    match = _RELATION.search(primary)
    table = match[1] if match else "the tables of the statement"
    role = quote_name(target.user) if target.user else "the role"
    return ToolFailed(
        f"target {target.name!r}: role {role} has no right on {table}, and a plan needs the statement's own rights",
        code="insufficient_privilege",
        fix=f"GRANT SELECT ON {table} TO {role}; (for the plan of an INSERT, UPDATE or DELETE pass its SELECT part)",
    )


def _place(position: str | None, statement: str, offset: int) -> str:
    if position is None or not position.isdigit():
        return ""
    at = int(position) - offset
    if not 1 <= at <= len(statement) + 1:
        return ""
    line = statement.count("\n", 0, at - 1) + 1
    column = at - (statement.rfind("\n", 0, at - 1) + 1)
    return f" (line {line}, column {column} of the statement)"
