"""Postgres' own parser (libpg_query, by the package postgast): SQL as a tree of plain mappings, and back.

A node is a mapping with one key that names its kind: ``{"column_ref": {"fields": [...]}}``; fields that have their
zero value are left out. The kinds are those of
https://github.com/pganalyze/libpg_query/blob/17-latest/protobuf/pg_query.proto.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import ModuleType

from agent_core.errors import ToolFailed
from bot.tools.slow_queries.lexer import TokenKind, tokenize

Tree = Mapping[str, object]

MOST_TOKENS = 10_000
"""Words, values and signs of a statement. The parser recurses in C: 25,000 additions in a row overflow a stack of
8 MiB, and take the whole process with it (measured with libpg_query 18)."""

_DEEPEST = 800


class ParseError(ValueError):
    """The text is not SQL of Postgres."""


def parse_tree(sql: str) -> tuple[Tree, ...]:
    """Return the statements in ``sql``.

    Raises:
        ParseError: it cannot be parsed, or is too long to be; the message is ours, because the parser's may repeat a
            value.
        ToolFailed: ``missing_extra``.
    """
    gaps = (TokenKind.SPACE, TokenKind.COMMENT)
    if sum(token.kind not in gaps for token in tokenize(sql, plain_backslash=True)) > MOST_TOKENS:
        raise ParseError("the statement is too long to be parsed")
    postgast, json_format = _load("postgast"), _load("google.protobuf.json_format")
    too_deep = _load("google.protobuf.message").DecodeError
    try:
        whole: object = json_format.MessageToDict(postgast.parse(sql), preserving_proto_field_name=True)
    except (postgast.PgQueryError, json_format.Error, too_deep, RecursionError):
        raise ParseError("the statement cannot be parsed") from None
    stmts = items(whole, "stmts")
    return tuple(part for stmt in stmts if (part := child(stmt, "stmt")))


def write_sql(tree: Tree) -> str:
    """Return the text of one statement.

    Raises:
        ParseError: the tree is none that the parser makes.
        ToolFailed: ``missing_extra``.
    """
    postgast, json_format = _load("postgast"), _load("google.protobuf.json_format")
    messages = _load("postgast.pg_query_pb2")
    try:
        text: object = postgast.deparse(json_format.ParseDict({"stmts": [{"stmt": tree}]}, messages.ParseResult()))
    except (postgast.PgQueryError, json_format.Error, RecursionError):
        raise ParseError("the tree cannot be written as SQL") from None
    return str(text)


def child(node: object, *keys: str) -> Tree:
    """Go down by field names; an empty mapping where there is nothing."""
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else {}


def items(node: object, key: str) -> tuple[Tree, ...]:
    """The nodes of a list field."""
    found = node.get(key) if isinstance(node, Mapping) else None
    return tuple(part for part in found if isinstance(part, Mapping)) if isinstance(found, list) else ()


def walk(node: object, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield every field of the tree with its name, from the top."""
    if depth > _DEEPEST:
        raise ParseError("the statement is nested too deeply")
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield str(key), value
            yield from walk(value, depth + 1)
    elif isinstance(node, list):
        for part in node:
            yield from walk(part, depth + 1)


def _load(name: str) -> ModuleType:
    # By name, because the package's type declarations do not parse.
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ToolFailed(
            "the parser of SQL is not installed",
            code="missing_extra",
            fix="pip install 'hermod-bot[postgres]', then start again",
        ) from error
