"""What tokens tell without a grammar: which names are called, and which name stands behind which with a dot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.tools.readonly_sql.mysql_functions import BEFORE_QUERY, RESERVED_BEFORE_PAREN, TYPES
from bot.tools.readonly_sql.mysql_lexer import Kind, Token


@dataclass(frozen=True, slots=True)
class Call:
    """A function's name in lower case; ``schema`` as spelled, None: a built-in one, or of the default database."""

    schema: str | None
    name: str


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name as spelled, for servers where case matters; ``schema`` None: of the default database."""

    schema: str | None
    name: str


def find_calls(tokens: Sequence[Token], *, grammar: frozenset[str] = frozenset()) -> tuple[Call, ...]:
    """List what is called: each name before a parenthesis that the grammar has no other use for.

    A name right behind ``)``, ``AS`` or a literal text is no call but a new name (``) AS v (a, b)``): a call there is
    a syntax error on every server, as it was tried on MariaDB 10.11.

    Args:
        tokens: of a statement, or of a stored function's body.
        grammar: further words that a parenthesis may follow.
    """
    found: dict[Call, None] = {}
    for place in range(len(tokens) - 1):
        token = tokens[place]
        if tokens[place + 1].is_symbol("(") and token.name and not _is_grammar(tokens, place, grammar):
            found[Call(_schema_of(tokens, place), token.name)] = None
    return tuple(found)


def find_pairs(tokens: Sequence[Token]) -> tuple[TableName, ...]:
    """List each ``a.b`` as a table ``b`` of a schema ``a``, which it may be."""
    return tuple(
        dict.fromkeys(
            TableName(first.spelled, second.spelled)
            for first, dot, second in zip(tokens, tokens[1:], tokens[2:], strict=False)
            if dot.is_symbol(".") and first.name and second.name
        )
    )


def _schema_of(tokens: Sequence[Token], place: int) -> str | None:
    if place >= 2 and tokens[place - 1].is_symbol(".") and tokens[place - 2].name:
        return tokens[place - 2].spelled
    return None


def _is_grammar(tokens: Sequence[Token], place: int, grammar: frozenset[str]) -> bool:
    """True where the name before the parenthesis at ``place`` + 1 is certainly not called."""
    token, before = tokens[place], tokens[place - 1] if place else None
    if before is not None and before.is_symbol("."):
        return False
    word = token.text.lower() if token.kind is Kind.WORD else ""
    if word in RESERVED_BEFORE_PAREN or word in TYPES or word in grammar:
        return True
    if word in BEFORE_QUERY:
        return place + 2 < len(tokens) and tokens[place + 2].is_word("select", "with", "values", "table")
    if before is None:
        return False
    of_json_table = word == "columns" and before.kind is Kind.STRING
    member_of = word == "of" and before.is_word("member")
    new_name = before.is_symbol(")") or before.is_word("as")
    return of_json_table or member_of or new_name or _names_a_query(tokens, place)


def _names_a_query(tokens: Sequence[Token], place: int) -> bool:
    """``WITH name (columns) AS (``: behind WITH, RECURSIVE or a comma, and AS ( behind the closing parenthesis."""
    before = tokens[place - 1]
    if not (before.is_word("with", "recursive") or before.is_symbol(",")):
        return False
    depth = 0
    for at in range(place + 1, len(tokens)):
        depth += tokens[at].is_symbol("(") - tokens[at].is_symbol(")")
        if not depth:
            after = tokens[at + 1 : at + 3]
            return len(after) == 2 and after[0].is_word("as") and after[1].is_symbol("(")
    return False
