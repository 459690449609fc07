"""The second judge: sqlglot's tree of a statement that the tokens let pass. The only module that imports sqlglot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.mysql_lexer import Kind, Token, join_tokens
from bot.tools.readonly_sql.mysql_scan import Call, TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What the tree tells: the tables it reads, and whether it asks for all columns of one."""

    tables: tuple[TableName, ...]
    all_columns: bool


def read_tree(tokens: Sequence[Token], calls: Sequence[Call]) -> Tree:
    """Parse and judge.

    Args:
        tokens: a SELECT, WITH, VALUES or TABLE statement.
        calls: what the tokens say is called; a further one in the tree means that the two read it differently.

    Raises:
        ToolFailed: ``parse_failed`` or ``not_read_only``; ``missing_extra`` without sqlglot.
    """
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise ToolFailed(
            "the SQL parser is not installed",
            code="missing_extra",
            fix="pip install 'hermod-bot[mysql]', then start again",
        ) from error
    try:
        parsed = sqlglot.parse(_spell(tokens), dialect="mysql")
    except (SqlglotError, RecursionError, ValueError) as error:
        raise ToolFailed(
            f"the statement cannot be read{_place(error)}, and what cannot be read is not run",
            code="parse_failed",
            fix="correct it, or write it in plainer SQL; names that are reserved words need backticks",
        ) from None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
        raise ToolFailed(
            "the statement is not read as one query", code="not_read_only", fix="pass one SELECT statement"
        )
    refused = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Set, exp.SetItem, exp.PropertyEQ)
    more = (exp.NextValueFor, exp.Transaction, exp.Commit, exp.Rollback, exp.Use, exp.Kill, exp.LoadData, exp.Drop)
    known = {call.name for call in calls} | {"row", "values"}
    tables: dict[TableName, None] = {}
    all_columns = False
    for node in parsed[0].walk():
        if isinstance(node, refused + more):
            raise ToolFailed(
                f"a part of the statement does more than read ({type(node).__name__})",
                code="not_read_only",
                fix="pass a query that writes and locks nothing",
            )
        if isinstance(node, exp.Anonymous) and node.name.lower() not in known:
            raise ToolFailed(
                "the statement can be read in two ways, and is not run", code="parse_failed", fix="write it plainer"
            )
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            tables[TableName(node.db or None, node.name)] = None
        if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
            all_columns = True
    return Tree(tables=tuple(tables), all_columns=all_columns)


def _spell(tokens: Sequence[Token]) -> str:
    """TABLE t is SELECT * FROM t, and VALUES a derived table: sqlglot knows both only so."""
    first = next((at for at, token in enumerate(tokens) if not token.is_symbol("(")), 0)
    if tokens[first].is_word("table"):
        spelled = (Token(Kind.WORD, "select * from", tokens[first].gap), *tokens[first + 1 :])
        return join_tokens((*tokens[:first], *spelled))
    if tokens[first].is_word("values"):
        return f"select 1 from ({join_tokens(tokens)}) as v"
    return join_tokens(tokens)


def _place(error: Exception) -> str:
    from sqlglot.errors import ParseError

    if isinstance(error, ParseError) and error.errors:
        line, column = error.errors[0].get("line"), error.errors[0].get("col")
        if isinstance(line, int) and isinstance(column, int):
            return f" (from line {line}, column {column}, comments left out)"
    return ""
