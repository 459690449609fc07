"""What went wrong on MySQL or MariaDB, in a code, a sentence and a remedy.

Nothing that the driver or the server says is passed on: their messages hold addresses, account names and data. The
error number decides; see https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html and
https://mariadb.com/kb/en/mariadb-error-code-reference/.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent_core.errors import ToolFailed
from bot.tools.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    code: str
    said: str
    fix: str
    retryable: bool = False


_ACCOUNT = _Reading(
    code="auth_failed",
    said="the server refused the user name or password",
    fix="correct the user in the target's url, and its password, password_env or password_file",
)
_HOST = _Reading(
    code="auth_failed",
    said="the server does not let this account in from here",
    fix="CREATE USER {role}@'ADDRESS' for the address that we come from, with the same rights",
)
_EXPIRED = _Reading(
    code="auth_failed",
    said="the account's password has expired or the account is locked",
    fix="ALTER USER {role} IDENTIFIED BY 'a new password' ACCOUNT UNLOCK; then change it in the target's settings",
)
_PLUGIN = _Reading(
    code="auth_failed",
    said="the account's authentication plugin is not one that the driver knows",
    fix="ALTER USER {role} IDENTIFIED WITH caching_sha2_password BY '...'; (MariaDB: IDENTIFIED BY '...')",
)
_FULL = _Reading(
    code="connect_failed",
    said="the server has no free connection for this account",
    fix="try again later; raise max_connections or the account's limits if it stays so",
    retryable=True,
)
_NO_DATABASE = _Reading(
    code="connect_failed",
    said="the server has no such database",
    fix="correct the database in the target's url",
)
_NO_DATABASE_RIGHT = _Reading(
    code="insufficient_privilege",
    said="the account has no right on this database",
    fix="GRANT SELECT, SHOW VIEW ON {database}.* TO {role}",
)
_BLOCKED = _Reading(
    code="connect_failed",
    said="the server blocks our address after many broken connections",
    fix="mariadb-admin flush-hosts, or TRUNCATE TABLE performance_schema.host_cache",
)
_NO_TLS = _Reading(
    code="connect_failed",
    said="the server has no TLS, and the target's sslmode demands it",
    fix='switch TLS on at the server, or set sslmode = "prefer" in the target\'s settings',
)
_TLS_DEMANDED = _Reading(
    code="connect_failed",
    said="the server takes connections with TLS only",
    fix='set sslmode = "require" (or "verify-full") in the target\'s settings',
)
_TLS = _Reading(
    code="connect_failed",
    said="no TLS connection as demanded could be made",
    fix="check the target's sslmode and certificates against what the server offers",
)
_CLEAR = _Reading(
    code="auth_failed",
    said="the server wants the password itself, and has not shown who it is",
    fix='set sslmode = "verify-full" in the target\'s settings, or use an account with another plugin',
)
_NO_HOST = _Reading(
    code="connect_failed",
    said="its host name cannot be resolved",
    fix="correct the host in the target's url, or the name server",
)
_NOBODY = _Reading(
    code="connect_failed",
    said="nothing answers at its address",
    fix="start the server, or correct host and port in the target's url",
)
_SLOW_GREETING = _Reading(
    code="connect_failed",
    said="the server did not answer in time",
    fix="check that the server runs and that no firewall is between it and here",
    retryable=True,
)
_BROKEN = _Reading(
    code="connect_failed",
    said="the connection broke",
    fix="try again in a moment; look into the server's log if it stays so",
    retryable=True,
)
_OTHER = _Reading(
    code="connect_failed",
    said="no connection could be made",
    fix="run 'hermod doctor', and look into the server's log",
)
_SILENCE = _Reading(
    code="connect_failed",
    said="the server took the connection and then stopped answering",
    fix="look whether the server, or a proxy in front of it, hangs or has no disk space left",
)
_TIMEOUT = _Reading(
    code="statement_timeout",
    said="the database took too long and the statement was ended on the server",
    fix="ask for a shorter time range, or try again when the database is less busy",
)
_LOCK = _Reading(
    code="lock_timeout",
    said="a lock was not free in time",
    fix="try again; another session holds a lock on a table that is needed",
    retryable=True,
)
_CANCELLED = _Reading(
    code="cancelled", said="somebody ended the statement on the server", fix="try again", retryable=True
)
_RIGHT = _Reading(
    code="insufficient_privilege",
    said="the account lacks a right",
    fix="GRANT PROCESS ON *.* TO {role}; GRANT SELECT ON performance_schema.* TO {role};",
)
_WRITES = _Reading(
    code="not_read_only",
    said="the statement would change something, and that was stopped",
    fix="pass a statement that only reads",
)
_SYNTAX = _Reading(
    code="parse_failed",
    said="the server cannot read the statement",
    fix="pass one statement in the server's own dialect; names that are reserved words need backquotes",
)
_UNKNOWN_NAME = _Reading(
    code="parse_failed",
    said="the statement names a table, column or function that is not there",
    fix="check the names, and write the database in front of the table's",
)
_PACKET = _Reading(
    code="result_too_large",
    said="the answer, or one row of it, is too large",
    fix="ask for fewer rows or columns, or cut long texts with LEFT(column, 1000)",
)
_ENCODING = _Reading(
    code="failed",
    said="the answer holds a text that is not valid in its character set",
    fix="ask for the column as HEX(column), or mend the text",
)
_STOPPING = _Reading(code="connect_failed", said="the server is stopping", fix="try again in a moment", retryable=True)

_BY_NUMBER: Mapping[int, _Reading] = {
    **dict.fromkeys((1045, 1698, 1251), _ACCOUNT),
    1130: _HOST,
    **dict.fromkeys((1820, 1862, 3118, 4151), _EXPIRED),
    **dict.fromkeys((1524, 2059, 2061), _PLUGIN),
    **dict.fromkeys((1040, 1203, 1226), _FULL),
    1044: _NO_DATABASE_RIGHT,
    1049: _NO_DATABASE,
    1129: _BLOCKED,
    **dict.fromkeys((3159, 4201), _TLS_DEMANDED),
    **dict.fromkeys((1053, 1077, 1079), _STOPPING),
    **dict.fromkeys((1158, 1159, 1160, 1161, 1927, 2006, 2013, 0), _BROKEN),
    **dict.fromkeys((1969, 3024, 1907), _TIMEOUT),
    **dict.fromkeys((1205, 1213, 3572), _LOCK),
    1317: _CANCELLED,
    **dict.fromkeys((1142, 1143, 1227, 1345, 1370, 1410, 3118), _RIGHT),
    **dict.fromkeys((1792, 1290, 1836), _WRITES),
    **dict.fromkeys((1064, 1065, 1149), _SYNTAX),
    **dict.fromkeys((1046, 1051, 1054, 1109, 1146, 1176, 1305, 1630), _UNKNOWN_NAME),
    **dict.fromkeys((1153, 1301), _PACKET),
}


def number_of(error: Exception) -> int:
    """The server's (or driver's) error number; 0 where there is none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def explain_connect_error(error: Exception, target: Target, *, plain: bool = False) -> ToolFailed:
    """Turn a failed connection attempt into a ``ToolFailed`` with code, words and remedy of our own.

    ``plain``: it was made without TLS. MariaDB answers that with "access denied" where it demands TLS.
    """
    from bot.tools.mysql.driver import Rejected

    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    number = number_of(error)
    if isinstance(error, Rejected):
        reading = _NO_TLS if error.why == "tls" else _CLEAR
    elif isinstance(cause, ssl.SSLError):
        reading = _TLS
    elif isinstance(cause, TimeoutError):
        reading = _SLOW_GREETING
    elif isinstance(cause, OSError):
        reading = _NO_HOST if isinstance(cause, socket.gaierror) else _NOBODY
    else:
        reading = _BY_NUMBER.get(number, _OTHER)
    if plain and reading is _ACCOUNT:
        reading = replace(reading, fix=f'{reading.fix}; or, where the server takes TLS only, set sslmode = "require"')
    return _failure(reading, target, "cannot connect to")


def explain_error(error: Exception, target: Target) -> ToolFailed:
    """Turn an error of a statement into a ``ToolFailed``; what broke the protocol counts as a broken connection."""
    from bot.tools.mysql.driver import MySQLError, PacketTooLarge

    if isinstance(error, PacketTooLarge):
        reading = _PACKET
    elif isinstance(error, UnicodeDecodeError):
        reading = _ENCODING
    elif not isinstance(error, MySQLError):
        reading = _BROKEN
    else:
        number = number_of(error)
        reading = _BY_NUMBER.get(number) or _Reading(
            code="failed",
            said=f"the server answered with error {number}",
            fix="look into the server's log for this moment",
        )
    return _failure(reading, target, "asking")


def explain_silence(target: Target) -> ToolFailed:
    """Build the failure of a server that took the connection and then stopped answering."""
    return _failure(_SILENCE, target, "lost")


def explain_timeout(target: Target) -> ToolFailed:
    """Build the failure of a statement that the server's own time-out ended, with or without saying so."""
    return _failure(_TIMEOUT, target, "asking")


def quote_name(name: str) -> str:
    """A name as it is written in SQL, quoted only where it has to be."""
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("`", "``") + "`"


def _failure(reading: _Reading, target: Target, doing: str) -> ToolFailed:
    role = quote_name(target.user) if target.user else "the account"
    database = quote_name(target.database) if target.database else "the database"
    return ToolFailed(
        f"{doing} target {target.name!r}: {reading.said}",
        code=reading.code,
        fix=reading.fix.replace("{role}", role).replace("{database}", database),
        retryable=reading.retryable,
    )
