"""Statements out of the statistics, made plannable again.

pg_stat_statements puts ``$1`` in the place of every constant, also where the grammar takes a constant only
(``interval '1 day'`` becomes ``interval $1``, ``extract(epoch from d)`` becomes ``extract($1 from d)``), and where
only the constant's looks told its type (``sum(case when paid then 1 end)``). Here such parameters get a type. What a
repair assumed is said. No database needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot.tools.slow_queries.lexer import Token, TokenKind, tokenize

# Names that may stand in front of a constant: https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-CONSTANTS-GENERIC
_TYPES = frozenset(
    {"interval", "date", "time", "timetz", "timestamp", "timestamptz", "numeric", "decimal", "json", "jsonb", "uuid"}
    | {"inet", "cidr", "macaddr", "bool", "boolean", "text", "varchar", "char", "bpchar", "int", "integer", "bigint"}
    | {"int2", "int4", "int8", "smallint", "float4", "float8", "real", "float", "money", "bytea", "bit", "varbit"}
    | {"point", "box", "line", "lseg", "path", "polygon", "circle", "tsvector", "tsquery", "xml", "name", "oid"}
    | {"regclass", "regproc", "regtype", "int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"}
)
_LONG_TYPES = (
    ("timestamp", "with", "time", "zone"),
    ("timestamp", "without", "time", "zone"),
    ("time", "with", "time", "zone"),
    ("time", "without", "time", "zone"),
    ("double", "precision"),
    ("character", "varying"),
)
_OF_TIME = frozenset({"extract", "date_part", "date_trunc", "age", "to_char", "timezone", "date_bin"})
_TRIED = ("integer", "numeric", "timestamptz", "text", "interval", "boolean")
_TRIED_FOR_TIME = ("timestamptz", "interval", "text")
_OPERATOR = frozenset("+-*/<>=~!@#%^&|`?")
_NAMED_PARAMETER = re.compile(r"\$(\d{1,5})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A statement that the grammar takes, and in ``notes`` what was assumed for it."""

    sql: str
    notes: tuple[str, ...] = ()


def repair_parameters(sql: str) -> Repaired:
    """Rewrite what no parameter may stand in: a type in front of one, and the field of ``extract``."""
    tokens = list(tokenize(sql, plain_backslash=True))
    texts = [token.text for token in tokens]
    solid = [at for at, token in enumerate(tokens) if token.kind not in (TokenKind.SPACE, TokenKind.COMMENT)]
    notes: list[str] = []
    for place, at in enumerate(solid):
        if tokens[at].kind is not TokenKind.PARAMETER:
            continue
        number = tokens[at].text
        if place + 1 < len(solid) and tokens[solid[place + 1]].text == ":":
            continue  # it has its type
        if (start := _find_type(tokens, solid, place)) is not None:
            kind = " ".join(texts[part] for part in solid[start:place])
            for gone in range(solid[start], at):
                texts[gone] = ""
            texts[at] = f"{number}::{kind}"
            notes.append(f"{number} is taken as {kind.lower()}")
        elif _is_field(tokens, solid, place):
            texts[solid[place - 2]] = "pg_catalog.date_part"
            texts[at] = f"{number}::text"
            texts[solid[place + 1]] = ","
            notes.append(f"extract({number} from ...) is taken as date_part({number}, ...)")
    return Repaired(sql="".join(texts), notes=tuple(dict.fromkeys(notes)))


def _find_type(tokens: Sequence[Token], solid: Sequence[int], place: int) -> int | None:
    """Where in ``solid`` the type in front of a parameter begins."""
    end = place
    if end >= 3 and tokens[solid[end - 1]].text == ")" and tokens[solid[end - 2]].kind is TokenKind.NUMBER:
        end -= 3  # timestamp(0) $1
    words = [tokens[at].text.lower() for at in solid[max(0, end - 4) : end]]
    for long in _LONG_TYPES:
        if tuple(words[-len(long) :]) == long:
            return end - len(long)
    if not words or words[-1] not in _TYPES or tokens[solid[end - 1]].kind is not TokenKind.WORD:
        return None
    before = tokens[solid[end - 2]].text if end >= 2 else ""
    return None if before in (".", ":") else end - 1


def _is_field(tokens: Sequence[Token], solid: Sequence[int], place: int) -> bool:
    if place < 2 or place + 1 >= len(solid):
        return False
    head, opening, following = (tokens[solid[at]].text.lower() for at in (place - 2, place - 1, place + 1))
    return head == "extract" and opening == "(" and following == "from"


def add_types(sql: str, types: Mapping[int, str]) -> str:
    """Write a type behind parameters, for example ``{1: "integer"}`` makes ``$1`` to ``$1::integer``."""
    parts: list[str] = []
    for token in tokenize(sql, plain_backslash=True):
        kind = types.get(int(token.text[1:])) if token.kind is TokenKind.PARAMETER else None
        parts.append(token.text if kind is None else f"{token.text}::{kind}")
    return "".join(parts)


def suggest_types(sql: str, *, at: int | None, message: str) -> Iterator[Mapping[int, str]]:
    """Yield what types to try for parameters, the likelier first, after the server could not tell them.

    Args:
        sql: the statement that the server refused.
        at: the place of its complaint, counted in characters from 0; None when it named none.
        message: its complaint, which may name a parameter.
    """
    tokens = list(tokenize(sql, plain_backslash=True))
    numbers, head = _suspects(tokens, at)
    if named := _NAMED_PARAMETER.search(message):
        numbers = (int(named[1]),)
    if not numbers:
        return
    for kind in _TRIED_FOR_TIME if head in _OF_TIME else _TRIED:
        yield dict.fromkeys(numbers, kind)


def _suspects(tokens: Sequence[Token], at: int | None) -> tuple[tuple[int, ...], str]:
    """The parameters without a type that a complaint at ``at`` is about, and the word that stands there."""
    solid = [t for t in _with_places(tokens) if t[1].kind not in (TokenKind.SPACE, TokenKind.COMMENT)]
    everything = _untyped(solid)
    place = next((i for i, (start, token) in enumerate(solid) if at is not None and start + len(token.text) > at), None)
    if place is None:
        return everything, ""
    head = solid[place][1].text.lower()
    if solid[place][1].kind is TokenKind.WORD:
        while place + 2 < len(solid) and solid[place + 1][1].text == ".":  # pg_catalog.extract
            place += 2
            head = solid[place][1].text.lower()
        inside = _untyped(solid[place + 1 : _close(solid, place + 1)])
        return inside or everything, head
    first = last = place  # an operator is one token a character
    while first > 0 and solid[first - 1][1].text in _OPERATOR:
        first -= 1
    while last + 1 < len(solid) and solid[last + 1][1].text in _OPERATOR:
        last += 1
    left, right = _open(solid, first - 1), _close(solid, last + 1)
    return _untyped(solid[left:right]) or everything, head


def _with_places(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    position = 0
    for token in tokens:
        yield position, token
        position += len(token.text)


def _untyped(solid: Sequence[tuple[int, Token]]) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for index, (_, token) in enumerate(solid):
        following = solid[index + 1][1].text if index + 1 < len(solid) else ""
        if token.kind is TokenKind.PARAMETER and not following.startswith(":") and len(token.text) < 7:
            found[int(token.text[1:])] = None
    return tuple(found)


def _close(solid: Sequence[tuple[int, Token]], start: int) -> int:
    """The end of what begins at ``start``: behind the closing parenthesis, or behind the one token (and its cast)."""
    depth = 0
    for index in range(start, len(solid)):
        text = solid[index][1].text.lower()
        depth += (text in ("(", "case")) - (text in (")", "end"))
        if depth <= 0 and (text in (")", "end") or solid[index][1].kind is not TokenKind.WORD):
            return index + 1
    return len(solid)


def _open(solid: Sequence[tuple[int, Token]], end: int) -> int:
    """The beginning of what ends at ``end``."""
    depth = 0
    for index in range(end, -1, -1):
        text = solid[index][1].text.lower()
        depth += (text in (")", "end")) - (text in ("(", "case"))
        if depth <= 0:
            return index
    return 0
