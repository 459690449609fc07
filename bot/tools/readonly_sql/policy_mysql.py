"""Which statements of MySQL and MariaDB only read: judged twice, on tokens and on sqlglot's tree.

Neither judge has to be right alone. The tokens (``mysql_lexer``) are read by the server's own rules, so that no quote
or comment hides a word, and every name before a parenthesis counts as a call. The tree tells what the statement is
made of; what sqlglot cannot read is refused. No connection is needed: what only the server knows (stored functions,
views) is listed in ``CheckedMySql`` for ``mysql_lookups``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.mysql_functions import LONGEST_REPEAT, REFUSED, WRITERS
from bot.tools.readonly_sql.mysql_lexer import Kind, Token, join_tokens, lex_mysql
from bot.tools.readonly_sql.mysql_scan import Call, TableName, find_calls, find_pairs
from bot.tools.readonly_sql.mysql_show import check_show, find_fields
from bot.tools.readonly_sql.mysql_tables import refuse_secrets
from bot.tools.slow_queries.statement_check import LONGEST_SQL

_QUERY_VERBS = ("select", "with", "values", "table")
_DESCRIBE_VERBS = ("describe", "desc", "explain")
_DEEPEST = 100
_WHAT_READS = "pass a SELECT, WITH, VALUES, TABLE, SHOW, DESCRIBE or EXPLAIN statement"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMySql:
    """A statement that reads, as far as its text tells.

    Args:
        tokens: of the statement, without comments.
        calls: names that are called, built-in or not.
        tables: what it may read from; also alias and column pairs that only look like a table of a schema.
        all_columns: it asks for ``*``.
        hints_left_out: optimizer hints stood in the text.
    """

    tokens: tuple[Token, ...]
    calls: tuple[Call, ...] = ()
    tables: tuple[TableName, ...] = ()
    all_columns: bool = False
    hints_left_out: bool = False

    @property
    def text(self) -> str:
        """The statement that goes to the server, with ``?`` for parameters."""
        return join_tokens(self.tokens)

    @property
    def placeholders(self) -> int:
        """How many ``?`` there are."""
        return sum(token.is_symbol("?") for token in self.tokens)


def check_mysql(sql: str, *, database: str = "") -> CheckedMySql:
    """Check that ``sql`` is one statement that only reads.

    Args:
        sql: the text as a person wrote it.
        database: the connection's default one, for tables without a schema.

    Raises:
        ToolFailed: ``parse_failed``, ``multiple_statements``, ``not_read_only``, or ``insufficient_privilege`` for
            what holds secrets of accounts. The text is not repeated.
    """
    if len(sql) > LONGEST_SQL:
        raise ToolFailed(
            f"the statement has {len(sql)} characters; {LONGEST_SQL} are taken",
            code="parse_failed",
            fix="pass a shorter statement, for example without long lists of values",
        )
    lexed = lex_mysql(sql)
    tokens = _take_one(lexed.tokens)
    _refuse_depth(tokens)
    verb = next((token.text.lower() for token in tokens if not token.is_symbol("(")), "")
    if verb in _DESCRIBE_VERBS:
        rest = find_fields(tokens)
        if rest is None:
            return CheckedMySql(tokens=tokens)
        checked = _check_query(rest, database)
    elif verb == "show":
        check_show(tokens)
        return CheckedMySql(tokens=tokens)
    else:
        checked = _check_query(tokens, database)
    return replace(checked, tokens=tokens, hints_left_out=lexed.hints)


def _take_one(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    end = len(tokens)
    while end and tokens[end - 1].is_symbol(";"):
        end -= 1
    if not end:
        raise ToolFailed("there is no statement in the text", code="parse_failed", fix=_WHAT_READS)
    if any(token.is_symbol(";") for token in tokens[:end]):
        raise ToolFailed(
            "there is more than one statement in the text",
            code="multiple_statements",
            fix="pass one statement at a time",
        )
    return tokens[:end]


def _refuse_depth(tokens: tuple[Token, ...]) -> None:
    depth = 0
    for token in tokens:
        depth += token.is_symbol("(") - token.is_symbol(")")
        if depth > _DEEPEST:
            raise ToolFailed(
                f"the statement has more than {_DEEPEST} parentheses inside each other",
                code="parse_failed",
                fix="write it with fewer levels",
            )


def _check_query(tokens: tuple[Token, ...], database: str) -> CheckedMySql:
    from bot.tools.readonly_sql.mysql_tree import read_tree

    verb = next((token for token in tokens if not token.is_symbol("(")), tokens[0])
    if not verb.is_word(*_QUERY_VERBS):
        said = verb.text.upper()[:30] if verb.kind is Kind.WORD else "this"
        raise ToolFailed(f"{said} is no statement that only reads", code="not_read_only", fix=_WHAT_READS)
    refuse_writers(tokens)
    calls = find_calls(tokens)
    refuse_known_calls(calls)
    _refuse_long_texts(tokens)
    tree = read_tree(tokens, calls)
    tables = tuple(dict.fromkeys((*tree.tables, *find_pairs(tokens))))
    names = frozenset(token.name for token in tokens if token.name)
    refuse_secrets(tables, names, all_columns=tree.all_columns, database=database)
    return CheckedMySql(tokens=tokens, calls=calls, tables=tables, all_columns=tree.all_columns)


def refuse_writers(tokens: tuple[Token, ...], *, allowed: frozenset[str] = frozenset()) -> None:
    """Refuse words that only writing, locking or account statements have; ``allowed`` ones pass.

    Raises:
        ToolFailed: code ``not_read_only``.
    """
    for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        word = token.text.lower() if token.kind is Kind.WORD else ""
        called = word in ("insert", "replace") and after is not None and after.is_symbol("(")
        encoding = word == "set" and before is not None and before.is_word("character", "char")
        shared = word == "share" and before is not None and before.is_word("for")
        sequence = word == "for" and before is not None and before.is_word("value")
        if word in allowed or called or encoding:
            continue
        if word in WRITERS or shared or sequence:
            raise ToolFailed(
                f"{'VALUE FOR' if sequence else 'FOR SHARE' if shared else word.upper()} has no place in a statement "
                "that only reads",
                code="not_read_only",
                fix=f"{_WHAT_READS} that writes no file or variable and takes no lock; "
                "a column with such a name needs backticks",
            )


def refuse_known_calls(calls: tuple[Call, ...]) -> None:
    """Refuse built-in functions that are known to do more than compute.

    Raises:
        ToolFailed: code ``not_read_only``.
    """
    for call in calls:
        if call.schema is None and (why := REFUSED.get(call.name)):
            raise ToolFailed(f"the function {call.name.upper()} {why}", code="not_read_only", fix="leave it out")


def _refuse_long_texts(tokens: tuple[Token, ...]) -> None:
    """REPEAT('a', 16000000) and the like: one call on such a text can take hours and ends at no time-out."""
    makers = {"repeat", "space", "lpad", "rpad"}
    for place, token in enumerate(tokens[:-1]):
        if token.kind is not Kind.WORD or token.text.lower() not in makers or not tokens[place + 1].is_symbol("("):
            continue
        depth = 0
        for inner in tokens[place + 1 :]:
            depth += inner.is_symbol("(") - inner.is_symbol(")")
            if not depth:
                break
            if inner.kind is Kind.NUMBER and _value(inner.text) > LONGEST_REPEAT:
                raise ToolFailed(
                    f"{token.text.upper()} would make a text of more than {LONGEST_REPEAT:,} characters",
                    code="not_read_only",
                    fix="use a smaller count",
                )


def _value(number: str) -> float:
    return float(int(number, 0)) if number[:2].lower() in ("0x", "0b") else float(number)
