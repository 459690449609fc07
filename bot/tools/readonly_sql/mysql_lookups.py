"""What only the server knows of a statement: its stored functions and views, down to what they call and read.

Tried on MariaDB 10.11. On MySQL 8 the same queries and SHOW CREATE FUNCTION are from documentation, never run:
https://dev.mysql.com/doc/refman/8.4/en/information-schema-routines-table.html,
https://dev.mysql.com/doc/refman/8.4/en/show-create-procedure.html (it needs SHOW_ROUTINE).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_core.errors import ToolFailed
from bot.tools.mysql.connection import MySqlReadOnly
from bot.tools.mysql.failures import quote_name
from bot.tools.readonly_sql.mysql_functions import ALLOWED, BODY_WORDS
from bot.tools.readonly_sql.mysql_lexer import Kind, Token, lex_mysql
from bot.tools.readonly_sql.mysql_scan import Call, find_calls, find_pairs
from bot.tools.readonly_sql.mysql_tables import refuse_secrets
from bot.tools.readonly_sql.policy_mysql import CheckedMySql, refuse_known_calls, refuse_writers

AMBIGUOUS_MODES = ("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "ORACLE", "MSSQL", "DB2", "POSTGRESQL", "MAXDB")
"""Words of ``sql_mode`` under which the server reads quotes or statements otherwise than ``mysql_lexer``."""

_DEEPEST = 8
_MOST_NAMES = 200
_READS = ("NO SQL", "READS SQL DATA")
_SHIPPED = "sys"
"""This schema comes with the server; what of its views is a secret, ``mysql_tables`` knows by name."""
_SHIPPED_FUNCTIONS = frozenset(
    """extract_schema_from_file_name extract_table_from_file_name format_bytes format_path format_statement format_time
    list_add list_drop ps_is_account_enabled ps_is_consumer_enabled ps_is_instrument_default_enabled
    ps_is_instrument_default_timed ps_is_thread_instrumented ps_thread_account ps_thread_id quote_identifier
    sys_get_config version_major version_minor version_patch""".split()  # noqa: SIM905 (to be read)
)
# INTO of a body fills its own variables (OUTFILE is refused apart), and CREATE begins its text.
_BODY_ALLOWED = frozenset({"create", "into", "set"})

_ROUTINES = (
    "select routine_schema as place, routine_name as name, sql_data_access as access from information_schema.routines "
    "where routine_type = 'FUNCTION' and (routine_schema, routine_name) in ({})"
)
_VIEWS = (
    "select table_schema as place, table_name as name, view_definition as body "
    "from information_schema.views where (table_schema, table_name) in ({})"
)


@dataclass(slots=True)
class _Names:
    """What was looked at, and what is to be looked at next; a function or view is judged once."""

    calls: set[tuple[str, str]] = field(default_factory=set)
    tables: set[tuple[str, str]] = field(default_factory=set)


async def refuse_hidden_writers(db: MySqlReadOnly, checked: CheckedMySql, *, database: str) -> None:
    """Look up the functions and views of a statement, and refuse what is not known to read only.

    A stored function is let through if it is declared NO SQL or READS SQL DATA, which the server does not check, and
    its body agrees; so the account has to see the body.

    Args:
        db: where the statement is going to run.
        checked: the statement.
        database: the connection's default one.

    Raises:
        ToolFailed: ``not_read_only``, or ``insufficient_privilege`` where a view's text cannot be seen.
    """
    seen = _Names()
    calls, tables = list(checked.calls), [(table, database) for table in checked.tables]
    for _ in range(_DEEPEST):
        calls_to_tell = _new(((call.schema or database, call.name) for call in calls), seen.calls)
        bodies = await _judge_calls(db, calls, database, calls_to_tell)
        tables_to_tell = _new(((table.schema or place, table.name) for table, place in tables), seen.tables)
        views = await _fetch(db, _VIEWS, tables_to_tell)
        calls, tables = [], []
        for place, tokens in (*bodies, *(_read_view(db, view) for view in views)):
            calls += [
                Call(call.schema or place, call.name) if call.name not in ALLOWED[db.flavor] else call
                for call in find_calls(tokens, grammar=BODY_WORDS)
            ]
            tables += [(table, place) for table in find_pairs(tokens)]
        if not calls and not tables:
            return
    raise _refuse("the statement's functions and views", f"go more than {_DEEPEST} levels deep")


def _new(names: Iterable[tuple[str, str]], seen: set[tuple[str, str]]) -> list[tuple[str, str]]:
    fresh = [name for name in dict.fromkeys(names) if name not in seen]
    seen.update(fresh)
    if len(seen) > _MOST_NAMES:
        raise _refuse("the statement", f"rests on more than {_MOST_NAMES} functions, views and columns")
    return fresh


async def _judge_calls(
    db: MySqlReadOnly, calls: Sequence[Call], default: str, names: Sequence[tuple[str, str]]
) -> list[tuple[str, Sequence[Token]]]:
    """Refuse calls of what is no reading function; return the bodies that are to be judged in their turn."""
    rows = {(str(row["place"]).lower(), str(row["name"]).lower()): row for row in await _fetch(db, _ROUTINES, names)}
    bodies: list[tuple[str, Sequence[Token]]] = []
    for call in calls:
        row = rows.get(((call.schema or default).lower(), call.name))
        built_in = call.schema is None and call.name in ALLOWED[db.flavor]
        if row is not None and not (built_in and await _is_native(db, call.name)):
            bodies.append(await _judge_routine(db, row))
        elif row is None and not built_in and (call.schema or default, call.name) in names:
            said = call.name if call.schema is None else f"{call.schema}.{call.name}"
            raise _refuse(f"the function {said[:80]}", "is not known to only read")
    return bodies


async def _is_native(db: MySqlReadOnly, name: str) -> bool:
    """A stored function has the name of an allowed one: which is called? On MySQL we cannot ask, and judge it."""
    if db.flavor == "mysql":
        return False
    query = (
        "select 1 from information_schema.sql_functions where function = %s "
        "union select 1 from information_schema.keywords where word = %s"
    )
    return bool(await db.fetch(query, [name, name]))


async def _judge_routine(db: MySqlReadOnly, row: Mapping[str, object]) -> tuple[str, Sequence[Token]]:
    place, name = str(row["place"]), str(row["name"])
    what = f"the stored function {place}.{name}"
    if place == _SHIPPED and name.lower() in _SHIPPED_FUNCTIONS:
        return place, ()
    if str(row["access"]).upper() not in _READS:
        raise _refuse(what, f"is declared {row['access']}, not READS SQL DATA or NO SQL")
    body = await _fetch_body(db, place, name)
    if not body:
        account = quote_name(db.target.user)
        right = "SELECT ON mysql.proc" if db.flavor == "mariadb" else "SHOW_ROUTINE ON *.*"
        raise ToolFailed(
            f"what {what} does cannot be seen by this account, so it is not run",
            code="insufficient_privilege",
            fix=f"GRANT {right} TO {account}",
        )
    try:
        tokens = lex_mysql(body).tokens
        refuse_writers(tokens, allowed=_BODY_ALLOWED)
        refuse_known_calls(find_calls(tokens))
    except ToolFailed as failure:
        raise _refuse(what, f"does more than read, or cannot be read ({failure.message})") from None
    for first, second in zip(tokens, (*tokens[1:], None), strict=False):
        if second is None:
            break
        sets = first.is_word("set") and (
            second.is_word("global", "session", "local", "persist", "password", "role", "statement", "transaction")
            or second.kind is Kind.VARIABLE
        )
        if sets or first.is_word("prepare", "execute", "handler", "do"):
            raise _refuse(what, "sets a variable of the session or the server, or runs a text as SQL")
    return place, tokens


async def _fetch_body(db: MySqlReadOnly, place: str, name: str) -> str:
    """The text as it was written, empty where it cannot be seen.

    ``information_schema.routines`` has it with its backslashes taken away, so that a quote ends elsewhere.
    """
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in (place, name))
    row = await db.fetch_one(f"SHOW CREATE FUNCTION {quoted}")
    body, mode = (None, "") if row is None else (row.get("Create Function"), str(row.get("sql_mode")))
    if any(word in mode for word in AMBIGUOUS_MODES):
        raise _refuse(f"the stored function {place}.{name}", f"was made with quotes read in another way ({mode})")
    return body if isinstance(body, str) else ""


def _read_view(db: MySqlReadOnly, row: Mapping[str, object]) -> tuple[str, Sequence[Token]]:
    place, name, body = str(row["place"]), str(row["name"]), row["body"]
    if not isinstance(body, str) or not body:
        if place == _SHIPPED:
            return _SHIPPED, ()
        shown = f"{quote_name(place)}.{quote_name(name)}"
        raise ToolFailed(
            f"what the view {place}.{name} does cannot be seen by this account, so it is not run",
            code="insufficient_privilege",
            fix=f"GRANT SHOW VIEW ON {shown} TO {quote_name(db.target.user)}; or select from its tables",
        )
    try:
        tokens = lex_mysql(body).tokens
        refuse_writers(tokens)
        refuse_known_calls(find_calls(tokens))
        names = frozenset(token.name for token in tokens if token.name)
        refuse_secrets(find_pairs(tokens), names, all_columns=False, database=place, mysql_8=db.flavor == "mysql")
    except ToolFailed as failure:
        raise ToolFailed(
            f"the view {place}.{name} cannot be used here: {failure.message}", code=failure.code, fix=failure.fix
        ) from None
    return place, tokens


async def _fetch(db: MySqlReadOnly, query: str, names: Sequence[tuple[str, str]]) -> Sequence[Mapping[str, object]]:
    if not names:
        return ()
    marks = ", ".join(["(%s, %s)"] * len(names))
    return await db.fetch(query.format(marks), [part for name in names for part in name])


def _refuse(what: str, why: str) -> ToolFailed:
    return ToolFailed(
        f"{what} {why}",
        code="not_read_only",
        fix="use built-in functions that only compute; a stored function has to be declared READS SQL DATA or NO SQL",
    )
