"""What went wrong on a database, in a code, a sentence and a remedy.

Nothing that libpq says is passed on as it is: its messages hold addresses and user names, and a server's may
hold data. The words here are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent_core.errors import ToolFailed
from bot.tools.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    code: str
    said: str
    fix: str
    retryable: bool = False


# libpq gives no SQLSTATE for a connection that was not made, so its English words have to be read.
_CONNECT: tuple[tuple[tuple[str, ...], _Reading], ...] = (
    (
        ("password authentication failed", "no password supplied", "authentication failed"),
        _Reading(
            code="auth_failed",
            said="the server refused the user name or password",
            fix="correct the user in the target's url, and its password, password_env or password_file",
        ),
    ),
    (
        ("no pg_hba.conf entry", "pg_hba.conf rejects", "is not permitted to log in"),
        _Reading(
            code="auth_failed",
            said="the server does not let this role in from here",
            fix="ALTER ROLE {role} LOGIN; and a line for the role and our address in pg_hba.conf, then reload",
        ),
    ),
    (
        ("permission denied for database",),
        _Reading(
            code="insufficient_privilege",
            said="the role may not connect to this database",
            fix="GRANT CONNECT ON DATABASE {database} TO {role}",
        ),
    ),
    (
        ("does not exist",),
        _Reading(
            code="connect_failed",
            said="the server has no such database or role",
            fix="correct the database or user name in the target's url",
        ),
    ),
    (
        ("too many clients", "too many connections", "remaining connection slots"),
        _Reading(
            code="connect_failed",
            said="the server has no free connection for this role",
            fix="try again later; raise max_connections or the role's CONNECTION LIMIT if it stays so",
            retryable=True,
        ),
    ),
    (
        ("starting up", "shutting down", "in recovery mode", "not yet accepting"),
        _Reading(
            code="connect_failed",
            said="the server is starting or stopping",
            fix="try again in a moment",
            retryable=True,
        ),
    ),
    (
        ("timeout expired", "timed out"),
        _Reading(
            code="connect_failed",
            said="the server did not answer in time",
            fix="check that the server runs and that no firewall is between it and here",
            retryable=True,
        ),
    ),
    (
        ("closed the connection unexpectedly", "reset by peer"),
        _Reading(
            code="connect_failed",
            said="the server broke the connection off",
            fix="try again; look into the server's log if it stays so",
            retryable=True,
        ),
    ),
    (
        ("could not translate host name", "name or service not known", "resolve host", "name resolution"),
        _Reading(
            code="connect_failed",
            said="its host name cannot be resolved",
            fix="correct the host in the target's url, or the name server",
        ),
    ),
    (
        ("ssl", "certificate"),
        _Reading(
            code="connect_failed",
            said="no TLS connection as demanded could be made",
            fix="check the target's sslmode and certificates against what the server offers",
        ),
    ),
    (
        ("connection refused", "no such file or directory", "no route to host", "network is unreachable"),
        _Reading(
            code="connect_failed",
            said="nothing answers at its address",
            fix="start the server, or correct host and port in the target's url",
        ),
    ),
    (
        ("invalid connection option", "invalid sslmode", "invalid port", "invalid integer value"),
        _Reading(
            code="connect_failed",
            said="its url has a parameter that libpq does not know",
            fix="correct the target's url and sslmode",
        ),
    ),
)
_CONNECT_OTHER = _Reading(
    code="connect_failed",
    said="no connection could be made",
    fix="run 'hermod doctor', and look into the server's log",
)

_QUOTED = re.compile(r'"[^"]*"')

_STATES: Mapping[str, _Reading] = {
    "57014": _Reading(
        code="statement_timeout",
        said="the database took too long and the statement was ended on the server",
        fix="ask for a shorter time range, or try again when the database is less busy",
    ),
    "55P03": _Reading(
        code="lock_timeout",
        said="a lock was not free in time",
        fix="try again; another session holds a lock on a table that is needed",
        retryable=True,
    ),
    "42501": _Reading(
        code="insufficient_privilege",
        said="the role lacks a right",
        fix=(
            "GRANT pg_monitor TO {role}; and where that is not enough: "
            "GRANT EXECUTE ON FUNCTION pg_stat_statements(boolean) TO {role};"
        ),
    ),
    "55000": _Reading(
        code="not_preloaded",
        said="pg_stat_statements is installed but not loaded",
        fix=(
            "add pg_stat_statements to shared_preload_libraries (ALTER SYSTEM SET shared_preload_libraries = "
            "'pg_stat_statements'; keep what is listed there already) and restart the server"
        ),
    ),
    "25006": _Reading(
        code="not_read_only",
        said="planning would have written something (a function that claims not to), and that was stopped",
        fix="correct the function's volatility",
    ),
    # PgBouncer's word for what its pool_mode does not allow: https://www.pgbouncer.org/config.html#pool_mode
    "08P01": _Reading(
        code="connect_failed",
        said="what stands in front of the server allows no transaction",
        fix="set the pooler's pool_mode to transaction or session for this database, or point the url at the server",
    ),
    "25P03": _Reading(code="cancelled", said="the session waited too long", fix="try again", retryable=True),
    "57P01": _Reading(
        code="connect_failed", said="the server ended the session", fix="try again in a moment", retryable=True
    ),
    "40001": _Reading(code="cancelled", said="a standby's recovery got in the way", fix="try again", retryable=True),
}


def explain_connect_error(error: Exception, target: Target) -> ToolFailed:
    """Turn a failed connection attempt into a ``ToolFailed`` with code, words and remedy of our own."""
    said = _QUOTED.sub('""', str(error).lower())  # names and paths may hold any of the phrases
    for phrases, reading in _CONNECT:
        if any(phrase in said for phrase in phrases):
            return _failure(reading, target, "cannot connect to")
    return _failure(_CONNECT_OTHER, target, "cannot connect to")


def explain_error(error: Exception, target: Target) -> ToolFailed:
    """Turn a psycopg error of one of our own statements into a ``ToolFailed``.

    The SQLSTATE decides; see https://www.postgresql.org/docs/current/errcodes-appendix.html.
    """
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        broken = _Reading(
            code="connect_failed", said="the connection broke", fix="try again in a moment", retryable=True
        )
        return _failure(broken, target, "lost")
    reading = _STATES.get(state)
    if reading is None:
        reading = _Reading(
            code="failed",
            said=f"the server answered with error {state}",
            fix="look into the server's log for this moment",
            retryable=state.startswith(("08", "53", "57P")),
        )
    return _failure(reading, target, "asking")


def explain_silence(target: Target) -> ToolFailed:
    """Build the failure of a server that took the connection and then stopped answering."""
    reading = _Reading(
        code="connect_failed",
        said="the server took the connection and then stopped answering",
        fix="look whether the server, or a pooler or proxy in front of it, hangs or has no disk space left",
    )
    return _failure(reading, target, "lost")


def quote_name(name: str) -> str:
    """A name as it is written in SQL, quoted only where it has to be."""
    plain = name.isascii() and name.isidentifier() and name == name.lower()
    return name if plain else '"' + name.replace('"', '""') + '"'


def _failure(reading: _Reading, target: Target, doing: str) -> ToolFailed:
    role = quote_name(target.user) if target.user else "the role"
    database = quote_name(target.database) if target.database else "the database"
    return ToolFailed(
        f"{doing} target {target.name!r}: {reading.said}",
        code=reading.code,
        fix=reading.fix.format(role=role, database=database),
        retryable=reading.retryable,
    )
