"""What of a statement can be planned without any right to write: a SELECT as it is, of a write the part that reads.

The servers plan an UPDATE, DELETE or INSERT only for accounts that may execute it, and MariaDB not at all in a READ
ONLY transaction. The rows that a write touches are found by the SELECT with its tables and conditions, so that is
planned; the texts are taken apart by tokens, and what the server gets has no comment in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.mysql_lexer import Kind, Token, join_tokens, lex_mysql
from bot.tools.slow_queries.statement_check import LONGEST_SQL

_VERBS = frozenset({"select", "insert", "update", "delete", "replace", "with", "values", "table"})
_MODIFIERS = ("low_priority", "quick", "ignore", "high_priority", "delayed")
_ANALYZE = ("analyze", "analyse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plannable:
    """A statement that can be explained.

    Args:
        tokens: of the SELECT that is planned.
        write: the verb of the write that it was made of; empty for a SELECT.
        placeholders: how many ``?`` are in it, which the server does not take in the text of EXPLAIN.
        shortened: it is a digest text, in which ``...`` stands for values nobody knows the number of.
    """

    tokens: tuple[Token, ...]
    write: str
    placeholders: int
    shortened: bool

    @property
    def sql(self) -> str:
        """The text without comments."""
        return join_tokens(self.tokens)


def take_plannable(sql: str) -> Plannable:
    """Take exactly one statement that has a plan; EXPLAIN in front and semicolons at the end are taken off.

    Raises:
        ToolFailed: ``parse_failed`` (empty, too long, unreadable, a write that reads nothing),
            ``multiple_statements``, or ``not_read_only`` (ANALYZE, which runs it; INTO; a command without a plan).
    """
    if len(sql) > LONGEST_SQL:
        raise ToolFailed(f"the statement has {len(sql)} characters; {LONGEST_SQL} are taken", code="parse_failed")
    tokens = list(lex_mysql(sql).tokens)
    while tokens and tokens[-1].is_symbol(";"):
        tokens.pop()
    if any(token.is_symbol(";") for token in tokens):
        raise ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="explain one statement at a time",
        )
    tokens = _drop_explain(tokens)
    if not tokens:
        raise ToolFailed("there is no statement in the text", code="parse_failed", fix="pass one SQL statement")
    verb = next((token.text.lower() for token in tokens if not token.is_symbol("(")), "")
    if verb not in _VERBS:
        raise ToolFailed(
            f"{verb[:30].upper()} is nothing that this tool plans",
            code="not_read_only",
            fix="pass a SELECT, INSERT, UPDATE, DELETE, REPLACE, VALUES or WITH statement",
        )
    tokens, write = _read_part(tokens)
    if any(token.is_word("into") for token in tokens):
        raise ToolFailed(
            "SELECT ... INTO writes to a variable or a file",
            code="not_read_only",
            fix="leave INTO and what it names out",
        )
    return Plannable(
        tokens=tuple(tokens),
        write=write,
        placeholders=sum(token.is_symbol("?") for token in tokens),
        shortened="..." in "".join(token.text if token.kind is Kind.SYMBOL else " " for token in tokens),
    )


def bind(plannable: Plannable) -> str:
    """The text for a driver that has ``%s`` for each placeholder."""
    return join_tokens(
        [
            Token(token.kind, "%s" if token.is_symbol("?") else token.text.replace("%", "%%"), token.gap)
            for token in plannable.tokens
        ]
    )


def _drop_explain(tokens: list[Token]) -> list[Token]:
    if not tokens or not tokens[0].is_word("explain", "describe", "desc", *_ANALYZE):
        return tokens
    rest = tokens if tokens[0].is_word(*_ANALYZE) else tokens[1:]
    at = 0
    while at < len(rest):
        if rest[at].is_word(*_ANALYZE):
            raise ToolFailed(
                "ANALYZE would run the statement; this tool only plans it",
                code="not_read_only",
                fix="pass the statement without EXPLAIN ANALYZE or ANALYZE",
            )
        if rest[at].is_word("format") and at + 2 < len(rest) and rest[at + 1].is_symbol("="):
            at += 3
        elif rest[at].is_word("extended", "partitions"):
            at += 1
        else:
            break
    return rest[at:]


def _read_part(tokens: list[Token]) -> tuple[list[Token], str]:
    """The SELECT that finds the rows, and the verb of the write that it was made of."""
    depths = _depths(tokens)
    start = 0
    if tokens[0].is_word("with"):
        start = _find(tokens, depths, 1, "select", "update", "delete", "insert", "replace", "values", "table")
        if start < 0:
            return tokens, ""
    head, verb = tokens[:start], tokens[start].text.lower()
    body, levels = tokens[start:], depths[start:]
    if verb == "update":
        at = _skip(body, 1)
        end = _find(body, levels, at, "set")
        return _select(head, body, levels, body[at : max(end, at)], max(end, at)), verb
    if verb == "delete":
        return _read_delete(head, body, levels), verb
    if verb in ("insert", "replace"):
        return [*head, *_read_insert(body, levels, verb)], verb
    return _drop_locks(tokens, depths), ""


def _drop_locks(tokens: list[Token], depths: Sequence[int]) -> list[Token]:
    """Take FOR UPDATE and its like off: a READ ONLY transaction refuses them, and the plan is the same."""
    for at in range(len(tokens) - 1):
        locks = tokens[at].is_word("for") and tokens[at + 1].is_word("update", "share")
        if not depths[at] and (locks or (tokens[at].is_word("lock") and tokens[at + 1].is_word("in"))):
            return tokens[:at]
    return tokens


def _select(
    head: Sequence[Token], body: Sequence[Token], levels: Sequence[int], tables: Sequence[Token], after: int
) -> list[Token]:
    """SELECT * FROM the tables, with the conditions that come after ``after``."""
    found = [at for word in ("where", "order", "limit") if (at := _find(body, levels, after, word)) >= 0]
    end = _find(body, levels, after, "returning")
    conditions = body[min(found) : end if end >= 0 else None] if found else []
    if not tables:
        raise ToolFailed(
            "the statement names no table", code="parse_failed", fix="pass the whole UPDATE or DELETE statement"
        )
    words = [Token(Kind.WORD, "SELECT", True), Token(Kind.SYMBOL, "*", True), Token(Kind.WORD, "FROM", True)]
    return [*head, *words, Token(tables[0].kind, tables[0].text, True), *tables[1:], *conditions]


def _read_delete(head: Sequence[Token], body: Sequence[Token], levels: Sequence[int]) -> list[Token]:
    """``DELETE FROM t WHERE``, ``DELETE a FROM tables WHERE`` or ``DELETE FROM a USING tables WHERE``."""
    start = _find(body, levels, 1, "from") + 1
    using = _find(body, levels, 1, "using")
    # A join may have USING (columns), too; the one of DELETE has no parenthesis right behind it.
    if using >= 0 and using + 1 < len(body) and not body[using + 1].is_symbol("("):
        start = using + 1
    if start == 0:
        start = _skip(body, 1)
    ends = [at for word in ("where", "order", "limit", "returning") if (at := _find(body, levels, start, word)) >= 0]
    end = min(ends, default=len(body))
    return _select(head, body, levels, body[start:end], end)


def _read_insert(body: Sequence[Token], levels: Sequence[int], verb: str) -> list[Token]:
    start = next(
        (
            at
            for at, token in enumerate(body)
            if at and levels[at] <= 1 and token.is_word("select", "with", "table") and _opens(body, levels, at)
        ),
        -1,
    )
    if start < 0:
        raise ToolFailed(
            f"an {verb.upper()} of values reads nothing, so it has no plan",
            code="parse_failed",
            fix="where it is slow, look at locks, triggers, indexes and foreign keys of the table",
        )
    end = next(
        (
            at
            for at in range(start, len(body))
            if not levels[at]
            and (
                body[at].is_word("returning")
                or (body[at].is_word("on") and at + 1 < len(body) and body[at + 1].is_word("duplicate"))
            )
        ),
        len(body),
    )
    while start and body[start - 1].is_symbol("("):
        start -= 1
    return list(body[start:end])


def _opens(body: Sequence[Token], levels: Sequence[int], at: int) -> bool:
    """True for the SELECT of an INSERT: at the outermost level, or right behind a parenthesis there."""
    return not levels[at] or body[at - 1].is_symbol("(")


def _skip(tokens: Sequence[Token], at: int) -> int:
    while at < len(tokens) and tokens[at].is_word(*_MODIFIERS):
        at += 1
    return at


def _find(tokens: Sequence[Token], depths: Sequence[int], start: int, *words: str) -> int:
    """The next of these words outside of parentheses; -1 for none. A word behind a dot is a name."""
    for at in range(start, len(tokens)):
        if not depths[at] and tokens[at].is_word(*words) and not (at and tokens[at - 1].is_symbol(".")):
            return at
    return -1


def _depths(tokens: Sequence[Token]) -> list[int]:
    depth, depths = 0, []
    for token in tokens:
        depth -= token.is_symbol(")")
        depths.append(depth)
        depth += token.is_symbol("(")
    return depths
