"""A statement on a server: prepared over the one-statement protocol, planned as often as needed, never run.

PREPARE proves that the text is exactly one statement, of a kind that has a plan. Plans for values that are not
known come from EXPLAIN (GENERIC_PLAN) where the server has it (16 and later), else from EXPLAIN EXECUTE under
``plan_cache_mode = force_generic_plan``: without that, NULLs are planned for, and a comparison with NULL has a plan
that reads nothing. Plans for given values come from EXPLAIN EXECUTE with a custom plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.connection import OWN_MARK, ReadOnly
from bot.tools.slow_queries.explain_failure import explain_failure, find_place
from bot.tools.slow_queries.explain_repair import add_types, repair_parameters, suggest_types

if TYPE_CHECKING:
    from psycopg import Error

ParameterValue = str | int | float | bool | None | list[str] | list[int] | list[float] | list[bool]
"""What may be bound to a parameter; a text is taken for a constant of whatever type the parameter has."""

_GENERIC_PLAN_SINCE = 160_000
_NAME = "hermod_statement"
_PREPARE = f"PREPARE {_NAME} {OWN_MARK} AS "
_SAVE = f"SAVEPOINT {_NAME} {OWN_MARK}".encode()
_BACK = f"ROLLBACK TO SAVEPOINT {_NAME} {OWN_MARK}".encode()
_KEPT = f"select {OWN_MARK} name from pg_catalog.pg_prepared_statements where name = '{_NAME}'".encode()
_OPTIONS = f"EXPLAIN {OWN_MARK} (FORMAT JSON, VERBOSE"

# The server could not tell a parameter's type, or took it for the wrong one.
_ABOUT_TYPES = frozenset({"42P18", "42725", "42883", "42804", "42846"})
_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A statement that the server takes.

    Args:
        sql: as it is planned; differs from what was asked where parameters had to be repaired.
        asked: as it was asked.
        types: of the parameters, in order.
        notes: what the repair assumed.
    """

    sql: str
    asked: str
    types: tuple[str, ...]
    notes: tuple[str, ...] = ()


async def prepare_statement(db: ReadOnly, statement: str) -> Prepared:
    """Let the server parse ``statement``, with types for parameters where it needs them.

    Raises:
        ToolFailed: ``parse_failed`` with the place, ``multiple_statements``, ``insufficient_privilege``, and what
            ``failures.explain_error`` names.
    """
    await _forget(db)
    repaired = repair_parameters(statement)
    sql, notes = repaired.sql, repaired.notes
    first = error = await _try_prepare(db, sql)
    for _ in range(_ROUNDS):
        if error is None or error.sqlstate not in _ABOUT_TYPES:
            break
        better = await _try_types(db, sql, error)
        if better is None:
            break
        sql, note, error = better
        notes = (*notes, note)
    if error is not None and first is not None:
        unchanged = repaired.sql == statement
        raise explain_failure(first, db.target, statement, offset=len(_PREPARE) if unchanged else None) from None
    row = await db.fetch_one(
        f"select {OWN_MARK} parameter_types::text[] as types from pg_catalog.pg_prepared_statements "
        f"where name = '{_NAME}'"
    )
    types = row["types"] if row is not None else None
    return Prepared(
        sql=sql, asked=statement, types=tuple(map(str, types)) if isinstance(types, list) else (), notes=notes
    )


async def plan_prepared(
    db: ReadOnly,
    prepared: Prepared,
    values: Sequence[ParameterValue] | None = None,
    *,
    again: bool = False,
    run: bool = False,
) -> object:
    """Return the JSON of EXPLAIN.

    Args:
        db: the connection on which the statement was prepared.
        prepared: what ``prepare_statement`` returned; another one may have been prepared since.
        values: of the parameters; None plans for values that are not known.
        again: something changed since (another statement, a hypothetical index), so nothing kept may serve.
        run: really run it (ANALYZE). Only ever on a copy that is ours; ``explain_query`` does not.

    Raises:
        ToolFailed: the server has no plan for it, or not in time.
    """
    import psycopg

    try:
        if again:
            # The text was proved to be one statement, so the simple protocol may carry it.
            await _forget(db)
            await db.execute((_PREPARE + prepared.sql + "\n").encode())
        if values is None and prepared.types and not run and db.version_num >= _GENERIC_PLAN_SINCE:
            # Parameters in the text need the simple protocol here.
            cursor = await db.execute((f"{_OPTIONS}, GENERIC_PLAN) {prepared.sql}\n").encode())
        else:
            mode = "force_generic_plan" if values is None else "force_custom_plan"
            await db.execute(f"set local plan_cache_mode = {mode}".encode())
            given: Sequence[ParameterValue] = [None] * len(prepared.types) if values is None else values
            arguments = b"(" + b", ".join(_quote(db, value) for value in given) + b")" if given else b""
            options = f"{_OPTIONS}, ANALYZE, TIMING OFF" if run else _OPTIONS
            cursor = await db.execute(f"{options}) EXECUTE {_NAME}".encode() + arguments)
        row = await cursor.fetchone()
    except psycopg.Error as error:
        offset = len(f"{_OPTIONS}, GENERIC_PLAN) ") if prepared.sql == prepared.asked and values is None else None
        raise explain_failure(error, db.target, prepared.asked, offset=offset) from None
    body: object = None if row is None else next(iter(row.values()))
    return json.loads(body) if isinstance(body, str) else body


async def _forget(db: ReadOnly) -> None:
    """Drop what is prepared; nothing may be, because psycopg drops all after a rollback."""
    cursor = await db.execute(_KEPT)
    if await cursor.fetchone() is not None:
        await db.execute(f"DEALLOCATE {_NAME}".encode())


def check_values(values: Sequence[ParameterValue], types: Sequence[str]) -> None:
    """Check that there is one value for each parameter.

    Raises:
        ToolFailed: ``bad_parameters``; the message tells the parameters' types.
    """
    if len(values) != len(types):
        known = ", ".join(f"${number} {kind}" for number, kind in enumerate(types, 1)) or "none"
        raise ToolFailed(
            f"the statement has {len(types)} parameters ({known}), and {len(values)} values were given",
            code="bad_parameters",
            fix="pass one value for each $n, in order, as params",
        )


def _quote(db: ReadOnly, value: ParameterValue) -> bytes:
    """A value as a constant, quoted by the driver; arrays as a text, because that suits every element type."""
    from psycopg import sql

    if isinstance(value, list):
        parts = ('"' + re.sub(r'(["\\\\])', r"\\\1", _word(part)) + '"' for part in value)
        value = "{" + ",".join(parts) + "}"
    return sql.Literal(value).as_bytes(db.connection)


def _word(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _try_prepare(db: ReadOnly, sql: str) -> Error | None:
    """Prepare; the error when the server refuses, with the transaction still usable."""
    import psycopg

    await db.execute(_SAVE)
    connection = db.connection
    connection.prepare_threshold = 1  # None would make psycopg ignore prepare=True
    try:
        # A comment at the end must not swallow anything, hence the line break.
        await db.execute((_PREPARE + sql + "\n").encode(), prepare=True)
    except psycopg.Error as error:
        if connection.closed:
            raise
        connection.prepare_threshold = None
        await db.execute(_BACK)
        return error
    finally:
        connection.prepare_threshold = None
    return None


async def _try_types(db: ReadOnly, sql: str, error: Error) -> tuple[str, str, Error | None] | None:
    """Try types for the parameters that the complaint is about; None when none brings the server further."""
    at = find_place(error, offset=len(_PREPARE))
    for types in suggest_types(sql, at=at, message=error.diag.message_primary or ""):
        trial = add_types(sql, types)
        left = await _try_prepare(db, trial)
        kinds = ", ".join(f"${number} is taken as {kind}" for number, kind in types.items())
        if left is None:
            return trial, kinds, None
        further = find_place(left, offset=len(_PREPARE))
        added = len(trial) - len(sql)
        if left.sqlstate in _ABOUT_TYPES and at is not None and further is not None and further > at + added:
            return trial, kinds, left
    return None
