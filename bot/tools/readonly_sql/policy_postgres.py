"""What a statement for Postgres is, and what it uses, by its parse tree. Nothing here asks a server.

A tree passes when it is one SELECT (or SHOW) made only of nodes that read; a node that is not known to read is
refused. What functions, operators, types, views and settings it names is for ``postgres_catalog`` to look up: only
the server knows what a name means there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.policy_postgres_names import (
    COMPARISONS,
    NEVER,
    NEVER_INSIDE,
    READING_NODES,
    SAMPLE_METHODS,
    SECRET_RELATIONS,
    SECRET_SETTING_WORDS,
    SECRET_SETTINGS,
    SYNTAX_FUNCTIONS,
    WORDS_OF_NODES,
)
from bot.tools.readonly_sql.policy_postgres_uses import ANY_SETTING, Name, Uses
from bot.tools.slow_queries.explain_parse import MOST_TOKENS
from bot.tools.slow_queries.lexer import TokenKind, tokenize
from bot.tools.slow_queries.redact_sql import redact_message
from bot.tools.slow_queries.statement_check import LONGEST_SQL

LONGEST_NAME_BYTES = 63
"""Of a name; the server cuts longer ones by bytes of its own encoding, so they might mean something else there."""


class Message(Protocol):
    """A protobuf message of libpg_query: wire data, read in this module only."""

    def WhichOneof(self, group: str, /) -> str | None: ...  # noqa: D102

    def __getattr__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement that reads, as far as its text can tell.

    Args:
        sql: without a semicolon, and without what stands around it.
        start: how many characters of the text stood before it.
        kind: ``show`` is a SHOW; ``uses.settings`` has its name.
        parameters: the highest ``$n``.
    """

    sql: str
    start: int
    kind: Literal["query", "show"]
    uses: Uses
    parameters: int = 0


def inspect_statement(sql: str) -> Statement:
    """Take a text as one statement that reads.

    Raises:
        ToolFailed: ``parse_failed`` (no SQL, too long, nested too deeply), ``multiple_statements``,
            ``not_read_only`` (another kind of statement, or a part that is not known to read), ``not_allowed`` (it
            reads where passwords are kept), ``missing_extra``.
    """
    tree = _parse(sql)
    if not tree.stmts:
        raise ToolFailed("there is no statement in the text", code="parse_failed", fix="pass one SELECT statement")
    if len(tree.stmts) > 1:
        raise ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="pass one statement at a time",
        )
    raw = tree.stmts[0]
    before, behind = sql.encode()[: raw.stmt_location], sql.encode()[raw.stmt_location :]
    whole = (behind[: raw.stmt_len] if raw.stmt_len else behind).decode()
    text, start = whole.strip(), len(before.decode()) + len(whole) - len(whole.lstrip())
    kind = raw.stmt.WhichOneof("node")
    if kind == "variable_show_stmt":
        name = str(raw.stmt.variable_show_stmt.name).lower()
        if name == "all":
            raise ToolFailed(
                "SHOW ALL also shows what is kept secret",
                code="not_allowed",
                fix="name one setting, or select name, setting from pg_settings where ...",
            )
        return Statement(sql=text, start=start, kind="show", uses=Uses(settings=frozenset({name})))
    if kind != "select_stmt":
        _refuse_node(getattr(raw.stmt, kind).DESCRIPTOR.name if kind else "")
    uses, parameters = _collect(tree)
    return Statement(sql=text, start=start, kind="query", uses=uses, parameters=parameters)


def inspect_view(definition: str, name: str) -> Uses:
    """Return what a view's definition uses, as the server wrote it.

    Raises:
        ToolFailed: see ``inspect_statement``; the message names the view.
    """
    try:
        return _collect(_parse(definition, trusted=True))[0]
    except ToolFailed as error:
        raise ToolFailed(f"view {name}: {error.message}", code=error.code, fix="query its tables directly") from None


def inspect_expression(expression: str, name: str) -> Uses:
    """Return what the check of a type uses; see ``inspect_view``."""
    try:
        return _collect(_parse(f"select ({expression}\n)", trusted=True))[0]
    except ToolFailed as error:
        raise ToolFailed(f"type {name}: {error.message}", code=error.code, fix="leave the cast out") from None


def has_foreign_words(sql: str) -> bool:
    """Tell whether names beyond ASCII stand unquoted; servers that do not speak UTF-8 fold those by their locale."""
    return not sql.isascii() and any(
        t.kind is TokenKind.WORD and not t.text.isascii() for t in tokenize(sql, plain_backslash=True)
    )


def refuse_setting(name: str) -> bool:
    """Tell whether a setting's value is nothing to show."""
    return name in SECRET_SETTINGS or ("." in name and any(word in name for word in SECRET_SETTING_WORDS))


# -- parsing ---------------------------------------------------------------------------------------


def _parse(sql: str, *, trusted: bool = False) -> Message:
    """Parse a text that came from a person, or (``trusted``) from the server."""
    try:
        # By name: the type stubs of postgast 0.2 cannot be read by a type checker.
        postgast = importlib.import_module("postgast")
        too_deep = importlib.import_module("google.protobuf.message").DecodeError
    except ImportError as error:
        raise ToolFailed(
            "the SQL parser for Postgres is not installed",
            code="missing_extra",
            fix="pip install 'hermod-bot[postgres]', then start again",
        ) from error
    _check_size(sql, LONGEST_SQL * (4 if trusted else 1))
    try:
        tree: Message = postgast.parse(sql)
    except too_deep:
        raise ToolFailed(
            "the statement is nested too deeply to be checked (about 45 levels are taken)",
            code="parse_failed",
            fix="split it with WITH, or use concat(...) and IN (...) in place of long chains of operators",
        ) from None
    except postgast.PgQueryError as error:
        raise ToolFailed(
            f"the statement cannot be read as Postgres SQL: {redact_message(str(error), sql)}",
            code="parse_failed",
            fix="correct the statement",
        ) from None
    return tree


def _check_size(sql: str, longest: int) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise ToolFailed("the statement holds half a character", code="parse_failed", fix="type it again") from None
    if "\0" in sql:
        raise ToolFailed("the statement holds a NUL character", code="parse_failed", fix="take it out")
    if len(sql) > longest:
        raise ToolFailed(f"the statement has {len(sql)} characters; {longest} are taken", code="parse_failed")
    tokens = [t for t in tokenize(sql, plain_backslash=True) if t.kind not in (TokenKind.SPACE, TokenKind.COMMENT)]
    names = (t.text for t in tokens if t.kind in (TokenKind.WORD, TokenKind.QUOTED_NAME))
    if any(len(name.strip('"').encode()) > LONGEST_NAME_BYTES for name in names):
        raise ToolFailed(
            f"a name is longer than {LONGEST_NAME_BYTES} bytes, of which the server would cut it",
            code="parse_failed",
            fix="write it as the server has it",
        )
    if (count := len(tokens)) > MOST_TOKENS:
        raise ToolFailed(
            f"the statement has {count} words, values and signs; {MOST_TOKENS} are taken",
            code="parse_failed",
            fix="select by a condition in place of a long list",
        )


# -- the tree --------------------------------------------------------------------------------------


_OPERATOR_FIELDS = {"A_Expr": "name", "SubLink": "oper_name", "SortBy": "use_op"}


class _Collector:
    """Fills ``Uses`` while the tree is walked, and refuses what can be refused by its name."""

    def __init__(self) -> None:
        self.functions: set[Name] = set()
        self.fields: set[str] = set()
        self.members: set[str] = set()
        self.operators: set[Name] = {("", name) for name in COMPARISONS}
        self.types: set[Name] = set()
        self.casts: set[Name] = set()
        self.relations: set[Name] = set()
        self.tables: set[str] = set()
        self.settings: set[str] = set()
        self.parameters = 0

    def take(self, node: Message, kind: str) -> None:
        match kind:
            case "FuncCall":
                self._take_function(node)
            case "ColumnRef":
                names = list(_strings(node.fields))
                if len(names) > 1:
                    self.fields.add(names[-1])
            case "A_Indirection":
                self._take_members(node)
            case "A_Expr" | "SubLink" | "SortBy":
                self._take_operator(getattr(node, _OPERATOR_FIELDS[kind]))
            case "TypeCast":
                self.casts.add(_name(node.type_name.names))  # its TypeName comes by itself
            case "TypeName":
                self.types.add(_name(node.names))
            case "CommonTableExpr":
                self.tables.add(str(node.ctename))
            case "RangeVar":
                self._take_relation(node.schemaname, node.relname)
            case "RangeTableSample":
                _check_sample(_name(node.method)[1])
            case "ParamRef":
                self.parameters = max(self.parameters, int(node.number))

    def _take_members(self, node: Message) -> None:
        for name in _strings(node.indirection):
            _check_function(name)
            if name == "current_setting":
                _refuse_hidden_setting()
            self.members.add(name)

    def _take_function(self, node: Message) -> None:
        schema, name = _name(node.funcname)
        if schema == "pg_catalog" and name in SYNTAX_FUNCTIONS:
            return
        _check_function(name)
        if name == "pg_show_all_settings":
            self.settings.add(ANY_SETTING)
        if name == "current_setting":
            self.settings.add(_constant(node.args))
        self.functions.add((schema, name))

    def _take_operator(self, parts: Sequence[Message]) -> None:
        if parts:
            self.operators.add(_name(parts))

    def _take_relation(self, schema: str, name: str) -> None:
        if name in SECRET_RELATIONS and schema in ("", "pg_catalog", "information_schema"):
            raise ToolFailed(
                f"{name} holds passwords, rules of access or other people's data, and is not read here",
                code="not_allowed",
                fix="ask the database's administrator; pg_roles has the roles without their passwords",
            )
        if name == "pg_settings":
            self.settings.add(ANY_SETTING)
        self.relations.add((schema, name))


def _collect(tree: Message) -> tuple[Uses, int]:
    collector = _Collector()
    for node, kind in _walk(tree):
        if kind not in READING_NODES:
            _refuse_node(kind)
        collector.take(node, kind)
    uses = Uses(
        functions=frozenset(collector.functions),
        fields=frozenset(collector.fields),
        members=frozenset(collector.members),
        operators=frozenset(collector.operators),
        types=frozenset(collector.types),
        casts=frozenset(collector.casts),
        relations=frozenset(collector.relations),
        tables=frozenset(collector.tables),
        settings=frozenset(collector.settings),
    )
    return uses, collector.parameters


def _walk(tree: Message) -> Iterator[tuple[Message, str]]:
    """Yield every node below the root with the name of its kind; an empty place in a list is none."""
    nodes = importlib.import_module("postgast").walk(tree)
    next(nodes)  # the root only holds the statement
    for _, node in nodes:
        kind = str(node.DESCRIPTOR.name)
        if kind != "Node":
            yield node, kind


def _strings(parts: Sequence[Message]) -> Iterator[str]:
    for part in parts:
        if part.WhichOneof("node") == "string":
            yield str(part.string.sval)


def _name(parts: Sequence[Message]) -> Name:
    """The last two parts of a name; a database in front is the server's to refuse."""
    *before, name = list(_strings(parts)) or [""]
    return (before[-1] if before else "", name)


def _constant(arguments: Sequence[Message]) -> str:
    """The setting that a call of ``current_setting`` names."""
    if arguments and arguments[0].WhichOneof("node") == "a_const":
        constant = arguments[0].a_const
        if constant.WhichOneof("val") == "sval":
            return str(constant.sval.sval).lower()
    _refuse_hidden_setting()


# -- refusals --------------------------------------------------------------------------------------


def _check_function(name: str) -> None:
    if name in NEVER or any(part in name for part in NEVER_INSIDE):
        raise ToolFailed(
            f"{name}() does more than to read what the statement shows, and is not run here",
            code="not_read_only",
            fix="write the query out",
        )


def _refuse_hidden_setting() -> NoReturn:
    raise ToolFailed(
        "a setting whose name is not written out may be a secret",
        code="not_allowed",
        fix="write current_setting('name')",
    )


def _check_sample(method: str) -> None:
    if method not in SAMPLE_METHODS:
        raise ToolFailed(f"TABLESAMPLE {method} is not known to only read", code="not_read_only", fix="use bernoulli")


def _refuse_node(kind: str) -> NoReturn:
    said = WORDS_OF_NODES.get(kind) or _spell(kind)
    fix = "pass a SELECT, WITH, VALUES, TABLE or SHOW statement that only reads"
    if kind == "ExplainStmt":
        fix = "use explain_query, which plans a statement and does not run it"
    raise ToolFailed(f"{said} is not run here: it does more than to read", code="not_read_only", fix=fix)


def _spell(kind: str) -> str:
    """``CreateFunctionStmt`` -> ``CREATE FUNCTION``."""
    word = kind.removesuffix("Stmt") or "this"
    return "".join(f" {c}" if c.isupper() and i else c for i, c in enumerate(word)).upper()
