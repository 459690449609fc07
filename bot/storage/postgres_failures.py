"""What went wrong on the Postgres that keeps Hermod's rows: what it means for its operator, and what to do.

What libpq says of a connection that was not made is not passed on: it may repeat parts of the address, and the password
is one of them. The words here are ours; what a server says of a statement is, with its SQLSTATE.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from bot.storage.base import StoreError

EXTRA = "[storage] url: postgresql:// needs psycopg; install the extra: pip install 'hermod-bot[postgres]'"

# libpq gives no SQLSTATE for a connection that was not made, so its English words have to be read.
_CONNECT: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("password authentication failed", "no password supplied", "authentication failed"),
        "the server refused the user name or password; correct them in [storage] url",
    ),
    (
        ("no pg_hba.conf entry", "pg_hba.conf rejects", "is not permitted to log in"),
        "the server does not let this role in from here; add a line for it to pg_hba.conf (and ALTER ROLE ... LOGIN)",
    ),
    (
        ("permission denied for database",),
        "the role may not connect to this database; GRANT CONNECT ON DATABASE ... TO its role",
    ),
    (
        ('role "" does not exist', 'user "" does not exist'),
        "the server has no such role; CREATE ROLE ... LOGIN PASSWORD '...', or correct the user in [storage] url",
    ),
    (
        ("does not exist", "no such database"),
        "the server has no such database; CREATE DATABASE ... OWNER its role, or correct its name in [storage] url",
    ),
    (
        ("too many clients", "too many connections", "remaining connection slots", "no more connections allowed"),
        "the server has no free connection for this role; raise max_connections or the role's CONNECTION LIMIT",
    ),
    (
        ("starting up", "shutting down", "in recovery mode", "not yet accepting"),
        "the server is starting or stopping; try again in a moment",
    ),
    (
        ("timeout expired", "timed out", "timeout"),
        "the server did not answer in time; check that it runs and that no firewall is in between",
    ),
    (
        ("closed the connection unexpectedly", "reset by peer"),
        "the server broke the connection off; try again, and look into its log if it stays so",
    ),
    (
        ("could not translate host name", "name or service not known", "resolve host", "name resolution"),
        "its host name cannot be resolved; correct the host in [storage] url, or the name server",
    ),
    (
        ("ssl", "certificate"),
        "no TLS connection as demanded could be made; check sslmode in [storage] url against what the server offers",
    ),
    (
        ("connection refused", "no such file or directory", "no route to host", "network is unreachable"),
        "nothing answers at its address; start the server, or correct host and port in [storage] url",
    ),
    (
        ("read-only", "session is not"),
        "no server at this address takes writes; point [storage] url at the primary",
    ),
    (
        ("invalid port", "invalid integer value", "invalid connection option", "invalid sslmode", "invalid value"),
        "libpq cannot read its address; correct port and parameters in [storage] url, and write %40 for an @ and %2F"
        " for a / in the password",
    ),
    (
        ("unsupported startup parameter",),
        "the pooler in front of it takes no such parameter; remove it from [storage] url, or name it in"
        " ignore_startup_parameters of PgBouncer",
    ),
)
_QUOTED = re.compile(r'"[^"]*"')
_PLAIN = re.compile(r"[\w.,:-]*")

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_STATES: dict[str, str] = {
    "25006": "takes no writes, it is a standby or read-only; point [storage] url at the primary",
    "3F000": "has no schema to make tables in; CREATE SCHEMA AUTHORIZATION for Hermod's role, or correct search_path",
    "42501": "refused Hermod's role a right; it must own Hermod's tables, and may need GRANT CREATE ON SCHEMA",
    "42P01": "lacks a table of Hermod's; was search_path changed, or something dropped? Start Hermod again, or restore",
    "53100": "cannot grow, its disk is full; free some space and try again",
    "53200": "ran out of memory; try again, and give the server more if it stays so",
    "53300": "has no free connection for this role; raise max_connections or the role's CONNECTION LIMIT",
    "54000": "takes no value that long",
    "55P03": "was locked by another session for too long; see who holds the lock (pg_locks)",
    "57014": "took too long with a statement, which was ended; see what keeps it busy (pg_stat_activity)",
    "57P01": "ended the connection (restarted, or an operator's pg_terminate_backend); the next try makes a new one",
    "57P02": "crashed and recovers; the next try makes a new connection",
    "57P03": "is starting or stopping; try again in a moment",
    "57P05": "ended a connection that was idle; the next try makes a new one",
    "25P03": "ended a transaction that was idle for too long; is this process overloaded?",
    "40001": "saw the same rows changed by others again and again; try again",
    "40P01": "saw the same rows locked by others in a circle again and again; try again",
    "08P01": "is behind a pooler that allows no transaction; set PgBouncer's pool_mode to transaction or session",
    "XX001": "says that data are damaged; stop Hermod and restore the database from a backup",
    "XX002": "says that an index is damaged; REINDEX it, and look at the server's disk",
}


def describe(url: str) -> str:
    """Name the database of an address for messages, without user and password.

    A password with a character in it that should have been escaped ends early, and its rest would be part of the name.
    """
    plain = "the Postgres database"
    try:
        parts = urlsplit(url)
        name, host = parts.path.strip("/"), parts.hostname or ""
    except ValueError:
        return plain
    if "@" in url.partition(parts.netloc)[2] or not _PLAIN.fullmatch(f"{name}{host}"):
        return plain
    return f"{plain}{f' {name}' if name else ''}{f' at {host}' if host else ''}"


def explain_connect(error: BaseException, url: str) -> StoreError:
    """Say why no connection could be made, in words of our own."""
    said = _QUOTED.sub('""', str(error).lower())  # names may hold any of the phrases
    if isinstance(error, TimeoutError):
        said = "timeout"
    for phrases, remedy in _CONNECT:
        if any(phrase in said for phrase in phrases):
            return StoreError(f"no connection to {describe(url)}: {remedy}")
    return StoreError(f"no connection to {describe(url)}; look into the server's log for the reason")


def explain(error: BaseException, url: str) -> StoreError:
    """Say what an error of a statement means."""
    where = describe(url)
    if isinstance(error, TimeoutError):
        return StoreError(f"{where} stopped answering; check the server and the network, then try again")
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        if type(error).__name__ in ("OperationalError", "InterfaceError"):
            return StoreError(
                f"the connection to {where} broke; what was under way may have happened or not,"
                " and the next try makes a new connection"
            )
        return StoreError(f"{where} refused a statement ({type(error).__name__})")
    diagnosis = getattr(error, "diag", None)
    said = str(getattr(diagnosis, "message_primary", None) or type(error).__name__)
    remedy = _STATES.get(state) or ("ended the connection; try again" if state[:2] == "08" else "refused a statement")
    return StoreError(f"{where} {remedy} ({state}: {said})")
