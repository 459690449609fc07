"""Which statements are to be helped: the one that was asked for, or those that took the most time in a range."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from agent_core.context import Clock
from agent_core.errors import ToolFailed
from bot.storage.base import StoreError
from bot.tools.envelope import WHOLE, AnswerWindow, Coverage
from bot.tools.slow_queries.connection import open_read_only
from bot.tools.slow_queries.explain_parse import ParseError, Tree, child, items, parse_tree, write_sql
from bot.tools.slow_queries.history import Choice, SnapshotStore, choose_window, iso_utc, save_reading
from bot.tools.slow_queries.lexer import TokenKind, tokenize
from bot.tools.slow_queries.redact_sql import fingerprint_sql
from bot.tools.slow_queries.statement_check import take_statement
from bot.tools.slow_queries.statements import fetch_counters, fetch_extension, fetch_server, fetch_texts
from bot.tools.slow_queries.time_range import TimeRange
from bot.tools.slow_queries.window import build_window
from bot.tools.targets import Target

MOST_STATEMENTS = 20
"""Shapes of a range that are looked at, those with the most total time."""

# More are fetched, because Hermod's own and what has no plan are among them.
_SPARE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement. ``calls``: executions in the window, None without one."""

    sql: str
    calls: int | None = None

    @property
    def fingerprint(self) -> str:
        """The name of its shape."""
        return fingerprint_sql(self.sql)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The statements of an answer, and what the choice of them rests on."""

    statements: tuple[Statement, ...]
    window: AnswerWindow | None = None
    coverage: Coverage = WHOLE


async def fetch_busiest(target: Target, store: SnapshotStore, clock: Clock, asked: TimeRange) -> Asked:
    """Return the shapes of the connected database with the most total time in a range.

    Raises:
        ToolFailed: as for ``get_slow_queries``.
    """
    async with open_read_only(target) as db:
        extension = await fetch_extension(db)
        server = await fetch_server(db)
        counters = await fetch_counters(db, extension, server, taken_at=clock.now())
        try:
            choice = await choose_window(store, target.name, counters, asked)
            await save_reading(store, target.name, counters)
        except StoreError:
            reason = "the storage of earlier readings cannot be used, so all numbers are since the counters began"
            choice = Choice(window=build_window(None, counters), lifetime=True, snapshots=0, reasons=(reason,))
        here = [(k, a) for k, a in choice.window.activities.items() if k.dbid == server.dbid and a.calls]
        here.sort(key=lambda pair: -pair[1].total_s)
        texts = await fetch_texts(db, extension, server, [key for key, _ in here[:_SPARE]])
    found: dict[str, Statement] = {}
    for key, activity in here:
        text = texts.get(key)
        if text is None or text.own or len(found) >= MOST_STATEMENTS:
            continue
        try:
            sql = take_statement(text.sql)[0]
        except ToolFailed:
            continue  # nothing that has a plan
        shape = await asyncio.to_thread(fingerprint_sql, sql)
        before = found.get(shape)
        calls = activity.calls + (0 if before is None or before.calls is None else before.calls)
        found[shape] = Statement(sql=sql if before is None else before.sql, calls=calls)
    window = AnswerWindow(
        asked_start=iso_utc(asked.start),
        asked_end=iso_utc(asked.end),
        start=None if choice.window.start is None else iso_utc(choice.window.start),
        end=iso_utc(choice.window.end),
    )
    coverage = Coverage(complete=not choice.reasons, reasons=choice.reasons, snapshots=choice.snapshots)
    return Asked(statements=tuple(found.values()), window=window, coverage=coverage)


def write_select(sql: str) -> str | None:
    """The reading part of a statement: of an UPDATE or DELETE the rows that it looks for; None when it has none.

    A plan needs the statement's own rights, and a reader has none to write.
    """
    try:
        trees = parse_tree(sql)
        if len(trees) != 1:
            return None
        if "select_stmt" in trees[0]:
            return sql
        if insert := child(trees[0], "insert_stmt"):
            source = child(insert, "select_stmt")
            return (
                None if "values_lists" in child(source, "select_stmt") or not source else _renumber(write_sql(source))
            )
        for kind, more in (("update_stmt", "from_clause"), ("delete_stmt", "using_clause")):
            if (stmt := child(trees[0], kind)) and "with_clause" not in stmt:
                return _renumber(write_sql(_as_select(stmt, more)))
    except ParseError:
        return sql  # the server says where the mistake is
    return None


def _as_select(stmt: Tree, more: str) -> Tree:
    select: dict[str, object] = {
        "target_list": [{"res_target": {"val": {"column_ref": {"fields": [{"a_star": {}}]}}}}],
        "from_clause": [{"range_var": child(stmt, "relation")}, *items(stmt, more)],
        "limit_option": "LIMIT_OPTION_DEFAULT",
        "op": "SETOP_NONE",
    }
    if where := child(stmt, "where_clause"):
        select["where_clause"] = where
    return {"select_stmt": select}


def _renumber(sql: str) -> str:
    """Parameters that went away leave gaps, which the server does not take."""
    return "".join(_renumbered(sql))


def _renumbered(sql: str) -> Iterator[str]:
    numbers: dict[str, int] = {}
    for token in tokenize(sql, plain_backslash=True):
        if token.kind is TokenKind.PARAMETER:
            yield f"${numbers.setdefault(token.text, len(numbers) + 1)}"
        else:
            yield token.text
