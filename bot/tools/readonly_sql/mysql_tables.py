"""Tables of the server's own schemas that hold secrets, and what of them stays closed.

Hashes of passwords are in ``mysql.user`` and its kin; raw texts of other people's statements, with every value in
them, in ``performance_schema`` and the lists of processes (``running_queries`` and ``get_slow_queries`` show them
without the values). Pages: https://mariadb.com/kb/en/the-mysql-database-tables/,
https://dev.mysql.com/doc/refman/8.4/en/system-schema.html,
https://dev.mysql.com/doc/refman/8.4/en/performance-schema-table-descriptions.html.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_core.errors import ToolFailed
from bot.tools.readonly_sql.mysql_lexer import Kind, Token
from bot.tools.readonly_sql.mysql_scan import TableName


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPEN_IN_MYSQL = _words(
    """
    column_stats columns_priv component db engine_cost event func gtid_executed gtid_slave_pos help_category
    help_keyword help_relation help_topic index_stats innodb_index_stats innodb_table_stats plugin proc procs_priv
    role_edges roles_mapping server_cost table_stats tables_priv time_zone time_zone_leap_second time_zone_name
    time_zone_transition time_zone_transition_type transaction_registry
    """
)
_CLOSED = frozenset(
    ("performance_schema", name)
    for name in (
        *("user_variables_by_thread", "keyring_keys", "keyring_component_status", "error_log"),
        *("replication_connection_configuration", "replication_applier_filters"),
    )
)
_STATEMENTS = ("current_statement", "last_statement", "waiting_query", "blocking_query")
_CLOSED_COLUMNS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("information_schema", "processlist"): ("info", "info_binary"),
    ("information_schema", "innodb_trx"): ("trx_query",),
    ("performance_schema", "processlist"): ("info",),
    ("performance_schema", "threads"): ("processlist_info",),
    ("performance_schema", "prepared_statements_instances"): ("sql_text",),
    ("performance_schema", "events_statements_summary_by_digest"): ("query_sample_text",),
    **{
        ("performance_schema", f"events_statements_{kind}"): ("sql_text",)
        for kind in ("current", "history", "history_long")
    },
    **{
        ("sys", mark + name): _STATEMENTS
        for mark in ("", "x$")
        for name in ("processlist", "session", "innodb_lock_waits", "schema_table_lock_waits")
    },
}
# On MariaDB's digest table this column does not exist, and * is then harmless: only MySQL 8 has the sample.
_STAR_IS_OPEN = ("performance_schema", "events_statements_summary_by_digest")


def refuse_secrets(
    tables: Sequence[TableName], names: frozenset[str], *, all_columns: bool, database: str, mysql_8: bool = False
) -> None:
    """Refuse tables and columns that hold hashes of passwords, keys, or raw texts of statements.

    Args:
        tables: what the statement may read.
        names: all names in it, in lower case.
        all_columns: it asks for ``*``.
        database: the default one.
        mysql_8: the server's digest table has a sample of each statement.

    Raises:
        ToolFailed: code ``insufficient_privilege``.
    """
    for table in tables:
        place = ((table.schema or database).lower(), table.name.lower())
        if (place[0] == "mysql" and place[1] not in _OPEN_IN_MYSQL) or place in _CLOSED:
            raise ToolFailed(
                f"{place[0]}.{place[1]} may hold secrets of accounts and stays closed here",
                code="insufficient_privilege",
                fix="use preflight for what the account may do, information_schema for everything else",
            )
        closed = _CLOSED_COLUMNS.get(place, ())
        star = all_columns and (place != _STAR_IS_OPEN or mysql_8)
        if closed and (star or names.intersection(closed)):
            raise ToolFailed(
                f"{place[0]}.{place[1]} holds raw statements of other people ({', '.join(closed)})",
                code="insufficient_privilege",
                fix="name the columns that you need without these (no *), or use running_queries and "
                "get_slow_queries, which leave the values out",
            )


SECRET_VARIABLE = "report_password"  # noqa: S105 (the name of one)
"""The one variable that shows a password as it is (https://mariadb.com/kb/en/replication-and-binary-log-system-variables/,
https://dev.mysql.com/doc/refman/8.4/en/replication-options-replica.html)."""

_VARIABLE_TABLES = _words("global_variables session_variables system_variables persisted_variables variables_info")


def reads_variables(tokens: Sequence[Token], tables: Sequence[TableName]) -> bool:
    """True for a statement that may show ``SECRET_VARIABLE``."""
    shown = tokens[0].is_word("show") and any(token.is_word("variables") for token in tokens)
    named = any(
        token.name == SECRET_VARIABLE or (token.kind is Kind.VARIABLE and SECRET_VARIABLE in token.text.lower())
        for token in tokens
    )
    return shown or named or any(table.name.lower() in _VARIABLE_TABLES for table in tables)
