"""Whether a text is one statement that can be explained. The server checks it again, see ``explain``."""

from __future__ import annotations

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.lexer import Token, TokenKind, tokenize

LONGEST_SQL = 50_000
"""Characters of SQL that are taken."""

_EXPLAINABLE = frozenset({"select", "insert", "update", "delete", "merge", "values", "with"})
_ANALYZE = frozenset({"analyze", "analyse"})


def take_statement(sql: str) -> tuple[str, bool]:
    """Return the statement in ``sql`` and whether it has ``$n`` parameters.

    A plain EXPLAIN in front and a semicolon at the end are taken off.

    Raises:
        ToolFailed: ``parse_failed`` (empty, too long, cut off), ``multiple_statements``, or ``not_read_only``
            (EXPLAIN ANALYZE, which would run it, or a command that has no plan).
    """
    if len(sql) > LONGEST_SQL:
        raise ToolFailed(f"the statement has {len(sql)} characters; {LONGEST_SQL} are taken", code="parse_failed")
    tokens = [t for t in tokenize(sql, plain_backslash=True) if t.kind is not TokenKind.COMMENT or t.text]
    tokens = _drop_explain(_trim(tokens))
    if not tokens:
        raise ToolFailed("there is no statement in the text", code="parse_failed", fix="pass one SQL statement")
    if not tokens[-1].complete:
        raise ToolFailed(
            "the statement is cut off inside a quoted text or comment",
            code="parse_failed",
            fix="pass the whole statement",
        )
    if any(token.text == ";" and token.kind is TokenKind.SYMBOL for token in tokens):
        raise ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="explain one statement at a time",
        )
    verb = next((t.text.lower() for t in tokens if not _is_gap(t) and t.text != "("), "")
    if verb not in _EXPLAINABLE:
        raise ToolFailed(
            f"{verb[:30].upper() or 'this'} is nothing that this tool plans",
            code="not_read_only",
            fix="pass a SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES or WITH statement",
        )
    return "".join(t.text for t in tokens), any(t.kind is TokenKind.PARAMETER for t in tokens)


def _is_gap(token: Token) -> bool:
    return token.kind in (TokenKind.SPACE, TokenKind.COMMENT)


def _trim(tokens: list[Token]) -> list[Token]:
    """Drop gaps at both ends and semicolons at the end."""
    start, end = 0, len(tokens)
    while start < end and _is_gap(tokens[start]):
        start += 1
    while end > start and tokens[end - 1].complete and (_is_gap(tokens[end - 1]) or tokens[end - 1].text == ";"):
        end -= 1
    return tokens[start:end]


def _drop_explain(tokens: list[Token]) -> list[Token]:
    """Take EXPLAIN with its options off, and refuse the option that would run the statement."""
    if not tokens or tokens[0].text.lower() != "explain":
        return tokens
    at, depth = 1, 0
    while at < len(tokens):
        word = tokens[at].text.lower()
        if word in _ANALYZE:
            raise ToolFailed(
                "EXPLAIN ANALYZE would run the statement; this tool only plans it",
                code="not_read_only",
                fix="pass the statement without EXPLAIN ANALYZE",
            )
        if word == "(" and _opens_options(tokens, at, depth):
            depth += 1
        elif word == ")" and depth:
            depth -= 1
        elif not depth and not _is_gap(tokens[at]) and word != "verbose":
            break
        at += 1
    return _trim(tokens[at:])


def _opens_options(tokens: list[Token], at: int, depth: int) -> bool:
    """``EXPLAIN (FORMAT JSON) ...`` has options in parentheses, ``EXPLAIN (SELECT ...)`` a statement."""
    if depth:
        return True
    following = next((t.text.lower() for t in tokens[at + 1 :] if not _is_gap(t)), "")
    return following != "(" and following not in _EXPLAINABLE
