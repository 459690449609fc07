"""What libpq and servers say, turned into codes and remedies that hold nothing of it."""

from __future__ import annotations

import psycopg
import pytest

from bot.tools.slow_queries.failures import explain_connect_error, explain_error, quote_name
from bot.tools.targets import Target

TARGET = Target.from_url("shop", "postgresql://bot:s3cret@db.internal/shop")


@pytest.mark.parametrize(
    ("said", "code", "retryable"),
    [
        (
            'connection to server at "db.internal" failed: FATAL:  password authentication failed for user "bot"',
            "auth_failed",
            False,
        ),
        ("fe_sendauth: no password supplied", "auth_failed", False),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "bot", no encryption', "auth_failed", False),
        ('FATAL:  role "bot" is not permitted to log in', "auth_failed", False),
        ('FATAL:  permission denied for database "shop"', "insufficient_privilege", False),
        ('FATAL:  database "no pg_hba.conf entry" does not exist', "connect_failed", False),
        ("FATAL:  sorry, too many clients already", "connect_failed", True),
        ('FATAL:  too many connections for role "bot"', "connect_failed", True),
        ("FATAL:  the database system is starting up", "connect_failed", True),
        ("connection timeout expired", "connect_failed", True),
        ("server closed the connection unexpectedly", "connect_failed", True),
        ("[Errno -2] Name or service not known", "connect_failed", False),
        ('could not translate host name "db.internal" to address', "connect_failed", False),
        ("server does not support SSL, but SSL was required", "connect_failed", False),
        ('connection to server on socket "/ssl/.s.PGSQL.1" failed: No such file or directory', "connect_failed", False),
        ("Connection refused", "connect_failed", False),
        ('invalid connection option "s3cret"', "connect_failed", False),
        ("something in 中文 with s3cret and db.internal", "connect_failed", False),
    ],
)
def test_a_connection_that_was_not_made_has_a_code_and_a_remedy(said: str, code: str, retryable: bool) -> None:
    failure = explain_connect_error(psycopg.OperationalError(said), TARGET)
    assert (failure.code, failure.retryable) == (code, retryable)
    assert failure.fix
    assert "'shop'" in failure.message
    for secret in ("s3cret", "db.internal", "10.0.0.9"):
        assert secret not in f"{failure.message} {failure.fix}"


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (psycopg.errors.QueryCanceled(), "statement_timeout", False),
        (psycopg.errors.LockNotAvailable(), "lock_timeout", True),
        (psycopg.errors.InsufficientPrivilege(), "insufficient_privilege", False),
        (psycopg.errors.ObjectNotInPrerequisiteState(), "not_preloaded", False),
        (psycopg.errors.AdminShutdown(), "connect_failed", True),
        (psycopg.errors.SerializationFailure(), "cancelled", True),
        (psycopg.errors.DiskFull(), "failed", True),
        (psycopg.errors.InternalError_(), "failed", False),
        (psycopg.OperationalError("consuming input failed: s3cret"), "connect_failed", True),
    ],
)
def test_a_statement_that_failed_has_a_code_and_a_remedy(error: psycopg.Error, code: str, retryable: bool) -> None:
    failure = explain_error(error, TARGET)
    assert (failure.code, failure.retryable) == (code, retryable)
    assert failure.fix
    assert "s3cret" not in f"{failure.message} {failure.fix}"


def test_names_are_quoted_only_where_it_is_needed() -> None:
    assert [quote_name(n) for n in ("bot", "Bot", 'a"b', "a-b", "größe")] == [
        "bot",
        '"Bot"',
        '"a""b"',
        '"a-b"',
        '"größe"',
    ]
