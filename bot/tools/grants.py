"""The SQL that makes an account with no more rights than Hermod needs. It is printed, and run by a person.

Rights: https://www.postgresql.org/docs/current/predefined-roles.html,
https://dev.mysql.com/doc/refman/8.4/en/privileges-provided.html and https://mariadb.com/kb/en/grant/.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.errors import ToolFailed
from bot.tools.targets import Target

PASSWORD = "PUT-A-PASSWORD-HERE"  # noqa: S105 (a placeholder)
"""Stands where the password goes."""

DEFAULT_ACCOUNT = "hermod"

MOST_CONNECTIONS = 10
"""Of the account at once: every tool call is one short connection."""

_ADMINISTRATORS = frozenset({"", "postgres", "root", "mysql", "mariadb"})


def build_grant_script(target: Target, *, account: str | None = None, schemas: Sequence[str] = ("public",)) -> str:
    """Write the script for a target's account.

    Args:
        target: Postgres, MySQL or MariaDB.
        account: its name; None takes the one of the target's URL, or ``hermod`` where that is an administrator's.
        schemas: on Postgres, those whose tables may be read.

    Raises:
        ToolFailed: ``unsupported``: the target has no accounts.
    """
    name = account or (DEFAULT_ACCOUNT if target.user in _ADMINISTRATORS else target.user)
    match target.engine:
        case "postgresql":
            return _write_postgres(name, target.database or target.user or "postgres", schemas)
        case "mysql":
            return _write_mysql(name, target.database)
        case _:
            raise ToolFailed(
                f"{target.describe()} has no accounts",
                code="unsupported",
                fix="give the user that Hermod runs as the right to read the file, and no other",
            )


def _write_postgres(account: str, database: str, schemas: Sequence[str]) -> str:
    role = quote_postgres(account)
    lines = f"""\
-- Run as an administrator: psql -d {_comment(database)} -f THIS_FILE (after the password was put in).

-- The account. Every tool call is one short connection, and a few at once are enough.
CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT {MOST_CONNECTIONS};

-- A second lock on what Hermod does itself: no transaction of the account writes, waits or stays for long.
ALTER ROLE {role} SET default_transaction_read_only = on;
ALTER ROLE {role} SET statement_timeout = '60s';
ALTER ROLE {role} SET lock_timeout = '5s';
ALTER ROLE {role} SET idle_in_transaction_session_timeout = '60s';
-- The same for files that large sorts leave on the server's disk. Only a superuser may set it:
-- ALTER ROLE {_comment(role)} SET temp_file_limit = '2GB';

-- Statistics of all statements and sessions, and all settings. Without it Hermod sees only its own.
GRANT pg_monitor TO {role};

GRANT CONNECT ON DATABASE {quote_postgres(database)} TO {role};

-- Plans (explain_query) and people's own SQL (run_readonly_sql) need the right to read the tables. Leave out what
-- nobody should see in a chat. Add the lines for each further schema: hermod targets grant --schema NAME.
"""
    for schema in map(quote_postgres, schemas):
        lines += f"""\
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
-- Of tables that whoever runs this makes later; their other owners run it, too:
ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role};
"""
    return (
        lines
        + f"""
-- Postgres up to 14 lets everybody make tables in schema public, and every version temporary ones. Where nothing
-- rests on that:
-- REVOKE CREATE ON SCHEMA public FROM PUBLIC;
-- REVOKE TEMPORARY ON DATABASE {_comment(quote_postgres(database))} FROM PUBLIC;
"""
    )


def _write_mysql(account: str, database: str) -> str:
    who = f"{quote_mysql_text(account)}@'%'"
    lines = f"""\
-- Run as an administrator: mysql < THIS_FILE (after the password was put in).

-- The account. Put Hermod's address in place of % where it is known. MariaDB also ends its long statements; on MySQL
-- each session of Hermod sets its own limit (max_execution_time).
CREATE USER {who} IDENTIFIED BY '{PASSWORD}'
  WITH MAX_USER_CONNECTIONS {MOST_CONNECTIONS} /*M! MAX_STATEMENT_TIME 60 */;

-- Statistics of statements, tables, indexes and locks.
GRANT SELECT ON performance_schema.* TO {who};
-- Views on them; a server without the schema takes the line all the same.
GRANT SELECT ON sys.* TO {who};
-- Sessions of others, and InnoDB's status. It changes nothing.
GRANT PROCESS ON *.* TO {who};
"""
    if not database:
        return (
            lines
            + f"""
-- Plans (explain_query) and people's own SQL (run_readonly_sql) need the right to read; one line for each database:
-- GRANT SELECT, SHOW VIEW ON `DATABASE`.* TO {_comment(who)};
"""
        )
    return (
        lines
        + f"""
-- Plans (explain_query) and people's own SQL (run_readonly_sql) need the right to read the tables, and for plans of
-- views their definitions. Leave out what nobody should see in a chat.
GRANT SELECT, SHOW VIEW ON {quote_mysql_database(database)}.* TO {who};
"""
    )


def quote_postgres(name: str) -> str:
    """A name as an identifier; always quoted, as it may be a keyword."""
    return '"' + name.replace('"', '""') + '"'


def quote_mysql_text(text: str) -> str:
    """A text as a literal, whatever the mode about backslashes."""
    if "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    return "`" + text.replace("`", "``") + "`"  # account names may be written as identifiers, where \\ is itself


def quote_mysql_database(name: str) -> str:
    """A database in a GRANT, where ``_`` and ``%`` would stand for any characters."""
    pattern = name.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    return "`" + pattern.replace("`", "``") + "`"


def _comment(text: str) -> str:
    """A name inside a line of comment, which its own line breaks must not end."""
    return " ".join(text.split()) or "DATABASE"
