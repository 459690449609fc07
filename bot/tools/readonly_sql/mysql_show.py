"""SHOW, DESCRIBE and EXPLAIN: which of them only tell, and nothing that is a secret."""

from __future__ import annotations

from collections.abc import Mapping

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.mysql_lexer import Kind, Token
from bot.tools.readonly_sql.mysql_scan import find_calls

_SHOWN = frozenset(
    tuple(words.split())
    for words in (
        *("databases", "schemas", "tables", "columns", "fields", "index", "indexes", "keys", "table status"),
        *("create table", "create view", "create database", "create schema", "create function", "create procedure"),
        *("create trigger", "create event", "create sequence", "variables", "status", "engines", "warnings", "errors"),
        *("collation", "character set", "charset", "plugins", "privileges", "open tables", "procedure status"),
        *("function status", "triggers", "events", "master status", "binary log status", "binlog status"),
        *("slave status", "replica status", "all slaves status", "binary logs", "master logs"),
    )
)
_BEFORE = frozenset({"full", "global", "session", "local", "storage", "extended"})
_ELSEWHERE: Mapping[str, str] = {
    "processlist": "use running_queries, which leaves the values out of the statements",
    "engine": "use blocking_tree or running_queries, which leave the values out of the statements",
    "grants": "use preflight, which tells what the account may do without its password's hash",
    "profile": "use explain_query",
    "profiles": "use explain_query",
}
_FORMATS = frozenset({"json", "traditional", "tree"})


def check_show(tokens: tuple[Token, ...]) -> None:
    """Check a SHOW statement.

    Raises:
        ToolFailed: ``not_read_only`` for what is not listed; texts of other people's statements and hashes of
            passwords are not shown.
    """
    words = [token.text.lower() if token.kind is Kind.WORD else "" for token in tokens[1:]]
    while words and words[0] in _BEFORE:
        words.pop(0)
    head = tuple(words[:3])
    if not any(head[: len(shown)] == shown for shown in _SHOWN):
        said = "SHOW " + " ".join(words[:2]).upper().strip()
        raise ToolFailed(
            f"{said[:60]} is not among what is shown here",
            code="not_read_only",
            fix=_ELSEWHERE.get(
                words[0] if words else "", "SHOW TABLES, COLUMNS, INDEX, CREATE TABLE, VARIABLES, STATUS"
            ),
        )
    if any(word in ("select", "with", "into", "values") for word in words[1:]) or find_calls(tokens):
        raise ToolFailed(
            "SHOW with a query or a function inside is not run",
            code="not_read_only",
            fix="use LIKE 'pattern', or a SELECT from information_schema",
        )


def find_fields(tokens: tuple[Token, ...]) -> tuple[Token, ...] | None:
    """Check DESCRIBE and EXPLAIN; return the query behind EXPLAIN, or None where a table is described.

    Raises:
        ToolFailed: ``not_read_only`` for ANALYZE, which runs the statement, and other connections' plans.
    """
    rest = tokens[1:]
    if rest and rest[0].is_word("analyze"):
        raise ToolFailed(
            "EXPLAIN ANALYZE would run the statement",
            code="not_read_only",
            fix="pass EXPLAIN without ANALYZE, or use explain_query",
        )
    if len(rest) >= 3 and rest[0].is_word("format") and rest[1].is_symbol("="):
        form = rest[2].text.strip("'\"").lower()
        if form not in _FORMATS:
            raise ToolFailed("EXPLAIN knows no such format", code="parse_failed", fix="FORMAT=JSON, or no FORMAT")
        rest = rest[3:]
    elif rest and rest[0].is_word("extended", "partitions") and len(rest) > 1:
        rest = rest[1:]
    if _is_table(rest):
        return None
    if not rest or rest[0].is_word("for"):
        raise ToolFailed(
            "only a table or a query of your own can be explained",
            code="not_read_only",
            fix="pass EXPLAIN SELECT ..., or use running_queries and explain_query",
        )
    return rest


def _is_table(tokens: tuple[Token, ...]) -> bool:
    """``[schema.]table [column]``."""
    if not tokens or not tokens[0].name or tokens[0].is_word("for", "select", "with", "values", "table"):
        return False
    rest = tokens[1:]
    if len(rest) >= 2 and rest[0].is_symbol(".") and rest[1].name:
        rest = rest[2:]
    return not rest or (len(rest) == 1 and (bool(rest[0].name) or rest[0].kind is Kind.STRING))
