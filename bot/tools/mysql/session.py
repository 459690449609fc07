"""What is said to a server on the way in, and the small readings of what goes and comes. No connection needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Literal

Flavor = Literal["mysql", "mariadb"]

OWN_MARK = "/* hermod */"
"""Inside our own statements, so that they can be told from those of applications where texts are kept."""

GRACE_S = 3.0
"""How much longer than the server's own time-out an answer is waited for, before the server counts as hung."""

# Two statements in one message, which have to be a syntax error; the rest in the order of the way in.
TWO = "DO 0; DO 0"
SESSION = "SET SESSION TRANSACTION READ ONLY"
GRANTS = "SHOW GRANTS"
BEGIN = "START TRANSACTION READ ONLY"
ID = f"SELECT {OWN_MARK} CONNECTION_ID() AS hermod_id"
IDENTITY = f"SELECT {OWN_MARK} @@hostname AS hermod_host, @@port, @@server_id"
_SCALARS = (str, bytes, int, float, Decimal, datetime, date, time, timedelta, type(None))


def build_settings(flavor: Flavor, timeout_s: float) -> str:
    """The limits of a session: seconds for each statement, a fifth of them for a lock, and modes that are known."""
    lock_s = max(1, int(timeout_s / 5))
    limit = (
        f"max_statement_time = {timeout_s:.3f}"
        if flavor == "mariadb"
        else f"max_execution_time = {max(1, int(timeout_s * 1000))}"
    )
    return (
        f"SET SESSION {limit}, lock_wait_timeout = {lock_s}, innodb_lock_wait_timeout = {lock_s}, "
        f"wait_timeout = {int(timeout_s + GRACE_S) + 60}, autocommit = 1, sql_mode = '', time_zone = '+00:00'"
    )


def list_own_statements() -> tuple[str, ...]:
    """What every connection of ours runs on its way in, as far as no alias of it says whose it is.

    The server's digests keep no comment to tell it by.
    """
    settings = (build_settings("mysql", 1.0), build_settings("mariadb", 1.0))
    return (*settings, SESSION, GRANTS, BEGIN)


def read_version(said: str) -> tuple[Flavor, str, tuple[int, int, int]]:
    """Read the version of a server's greeting: ``5.5.5-10.11.19-MariaDB-log`` is MariaDB 10.11.19.

    The ``5.5.5-`` in front is there for old replicas only (https://mariadb.com/kb/en/connection/).
    """
    flavor: Flavor = "mariadb" if "mariadb" in said.lower() else "mysql"
    if flavor == "mariadb":
        said = said.removeprefix("5.5.5-")
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", said)
    if match is None:
        return flavor, said[:20] or "unknown", (0, 0, 0)
    return flavor, match[0], (int(match[1]), int(match[2]), int(match[3] or 0))


def check_parameters(parameters: Sequence[object]) -> tuple[object, ...] | None:
    """Check what is to be written into a statement; None for none: the driver then leaves percent signs alone.

    Raises:
        TypeError: a parameter is a dict, list or something else that the driver does not escape as one value.
    """
    if isinstance(parameters, (str, bytes, Mapping)):
        raise TypeError("parameters have to be a sequence of values")
    for value in parameters:
        if not isinstance(value, _SCALARS):
            raise TypeError(f"a parameter of type {type(value).__name__} is not taken")
    return tuple(parameters) or None


def read_columns(description: object) -> tuple[str, ...]:
    """The names of an answer's columns; none for what answers without rows."""
    return tuple(str(column[0]) for column in description) if isinstance(description, tuple) else ()


def measure(value: object) -> int:
    """Bytes of a value as text."""
    if isinstance(value, bytes):
        return len(value)
    return len(value.encode(errors="replace")) if isinstance(value, str) else len(str(value))
