"""What is decided without a server: versions, rights, addresses, errors."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import asyncmy.errors
import pytest

from agent_core.errors import ToolFailed
from bot.tools.mysql.address import list_places
from bot.tools.mysql.driver import PacketTooLarge, Rejected
from bot.tools.mysql.failures import explain_connect_error, explain_error, quote_name
from bot.tools.mysql.privileges import find_risks, refuse_risks
from bot.tools.mysql.session import read_version
from bot.tools.targets import Target

TARGET = Target.from_url("shop", "mysql://re`ader:pass-word@db.internal:3307/sales")


@pytest.mark.parametrize(
    ("said", "flavor", "version", "numbers"),
    [
        ("5.5.5-10.11.19-MariaDB-0+deb12u1-log", "mariadb", "10.11.19", (10, 11, 19)),
        ("11.8.2-MariaDB", "mariadb", "11.8.2", (11, 8, 2)),
        ("8.0.36", "mysql", "8.0.36", (8, 0, 36)),
        ("8.0.35-27", "mysql", "8.0.35", (8, 0, 35)),
        ("9.1.0-commercial", "mysql", "9.1.0", (9, 1, 0)),
        ("8.0", "mysql", "8.0", (8, 0, 0)),
        ("", "mysql", "unknown", (0, 0, 0)),
    ],
)
def test_a_greeting_is_read_as_server_and_version(
    said: str, flavor: str, version: str, numbers: tuple[int, int, int]
) -> None:
    assert read_version(said) == (flavor, version, numbers)


@pytest.mark.parametrize(
    ("grants", "risks"),
    [
        (["GRANT USAGE ON *.* TO `a`@`%`", "GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`"], set()),
        (["GRANT PROCESS, SELECT, SHOW VIEW ON *.* TO `a`@`%`"], set()),
        (["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED BY PASSWORD '*x' WITH GRANT OPTION"], {1, 2}),
        # From https://dev.mysql.com/doc/refman/8.4/en/show-grants.html, never run.
        (
            [
                "GRANT SELECT, INSERT, RELOAD, SHUTDOWN, PROCESS, FILE, SUPER ON *.* TO `root`@`localhost`",
                "GRANT APPLICATION_PASSWORD_ADMIN,SYSTEM_VARIABLES_ADMIN ON *.* TO `root`@`localhost`",
                "GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION",
            ],
            {1, 2},
        ),
        (["GRANT SYSTEM_VARIABLES_ADMIN,XA_RECOVER_ADMIN ON *.* TO `a`@`%`"], {1}),
        (["GRANT SELECT, FILE ON *.* TO `a`@`%`"], {2}),
        (["GRANT `app_read`@`%` TO `a`@`%`", "GRANT SELECT ON `file`.* TO `super`@`%`"], set()),
    ],
)
def test_dangerous_rights_are_those_on_the_whole_server(grants: list[str], risks: set[int]) -> None:
    names = {1: "superuser", 2: "file_privilege"}
    assert find_risks(grants) == {names[risk] for risk in risks}


def test_risks_that_are_accepted_by_name_pass_and_the_others_are_named() -> None:
    accepting = Target.from_url("shop", "mysql://a@b/", accept_risks=["superuser"])
    grants = ["GRANT SUPER, FILE ON *.* TO `a`@`%`"]
    with pytest.raises(ToolFailed) as caught:
        refuse_risks(grants, accepting)
    assert 'accept_risks = ["file_privilege", "superuser"]' in caught.value.fix
    assert "files" in caught.value.message
    assert "SUPER" not in caught.value.message
    refuse_risks(["GRANT SUPER ON *.* TO `a`@`%`"], accepting)


@pytest.mark.parametrize(
    ("options", "optional", "verify", "hostname"),
    [
        ("", True, ssl.CERT_NONE, False),
        ("?sslmode=prefer", True, ssl.CERT_NONE, False),
        ("?sslmode=require", False, ssl.CERT_NONE, False),
        ("?ssl-mode=REQUIRED", False, ssl.CERT_NONE, False),
        ("?sslmode=verify-ca", False, ssl.CERT_REQUIRED, False),
        ("?sslmode=verify-full", False, ssl.CERT_REQUIRED, True),
        ("?ssl-mode=VERIFY_IDENTITY", False, ssl.CERT_REQUIRED, True),
    ],
)
def test_the_words_for_tls_are_those_of_libpq_and_of_mysqls_clients(
    options: str, optional: bool, verify: ssl.VerifyMode, hostname: bool
) -> None:
    (place,) = list_places(Target.from_url("shop", f"mysql://a:b@host/{options}"))
    assert place.tls is not None
    assert (place.tls_optional, place.tls.verify_mode, place.tls.check_hostname) == (optional, verify, hostname)
    assert place.verified is (verify is ssl.CERT_REQUIRED)


def test_a_switched_off_tls_and_a_socket_have_none() -> None:
    (plain,) = list_places(Target.from_url("shop", "mysql://a@host/?sslmode=disable"))
    (local,) = list_places(Target.from_url("shop", "mysql://a@/db?unix_socket=/run/my.sock&sslmode=require"))
    assert (plain.tls, plain.verified) == (None, False)
    assert (local.tls, local.verified, local.options["unix_socket"]) == (None, True, "/run/my.sock")


def test_several_hosts_are_tried_in_order_with_their_ports() -> None:
    places = list(list_places(Target.from_url("shop", "mysql://a@one:3307,two:3308/db")))
    assert [(place.options["host"], place.options["port"]) for place in places] == [("one", 3307), ("two", 3308)]


@pytest.mark.parametrize(
    "url",
    [
        "mysql://a@h:99999/",
        "mysql://a@h/?charset=latin1",
        "mysql://a@h/?sslmode=maybe",
        "mysql://a@h/?sslmode=verify-full&sslrootcert=/nowhere/root.pem",
        "mysql://a@h/?sslcert=/nowhere/client.pem",
    ],
)
def test_an_address_that_cannot_be_used_says_so_without_a_connection(url: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        list(list_places(Target.from_url("shop", url)))
    assert caught.value.code == "connect_failed"


def test_a_password_is_in_no_representation_of_a_place() -> None:
    (place,) = list_places(TARGET)
    assert "pass-word" not in repr(place)
    assert "db.internal" not in repr(place)


def test_a_client_certificate_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(ToolFailed, match="cannot be read"):
        list(list_places(Target.from_url("shop", f"mysql://a@h/?ssl-cert={tmp_path}/bad.pem")))


def raise_from(cause: Exception) -> asyncmy.errors.OperationalError:
    """As the driver wraps what happens while it connects."""
    error = asyncmy.errors.OperationalError(2003, f"Can't connect to MySQL server on 'db.internal' ({cause})")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            asyncmy.errors.OperationalError(1045, "Access denied for user 'reader'@'10.0.0.7'"),
            "auth_failed",
            "password",
        ),
        (asyncmy.errors.OperationalError(1130, "Host '10.0.0.7' is not allowed"), "auth_failed", "from here"),
        (asyncmy.errors.OperationalError(1040, "Too many connections"), "connect_failed", "no free connection"),
        (asyncmy.errors.OperationalError(1049, "Unknown database 'sales'"), "connect_failed", "no such database"),
        (asyncmy.errors.OperationalError(1044, "Access denied"), "insufficient_privilege", "no right"),
        (asyncmy.errors.OperationalError(3159, "secure transport"), "connect_failed", "TLS only"),
        (asyncmy.errors.OperationalError(2059, "plugin 'x'"), "auth_failed", "plugin"),
        (raise_from(ConnectionRefusedError(111, "10.0.0.7")), "connect_failed", "nothing answers"),
        (raise_from(TimeoutError()), "connect_failed", "in time"),
        (raise_from(socket.gaierror(-2, "db.internal")), "connect_failed", "cannot be resolved"),
        (raise_from(ssl.SSLCertVerificationError(1, "db.internal")), "connect_failed", "no TLS connection"),
        (Rejected("tls"), "connect_failed", "has no TLS"),
        (Rejected("clear"), "auth_failed", "wants the password itself"),
        (asyncmy.errors.OperationalError(9999, "10.0.0.7"), "connect_failed", "no connection could be made"),
    ],
)
def test_a_failed_connection_has_a_code_and_words_of_ours(error: Exception, code: str, words: str) -> None:
    failure = explain_connect_error(error, TARGET)
    assert failure.code == code
    assert words in failure.message
    for private in ("10.0.0.7", "db.internal", "pass-word"):
        assert private not in failure.message + failure.fix


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (1969, "statement_timeout"),
        (3024, "statement_timeout"),
        (1205, "lock_timeout"),
        (1317, "cancelled"),
        (1142, "insufficient_privilege"),
        (1227, "insufficient_privilege"),
        (1792, "not_read_only"),
        (1064, "parse_failed"),
        (1146, "parse_failed"),
        (2013, "connect_failed"),
        (1366, "failed"),
    ],
)
def test_a_failed_statement_is_told_by_its_number_alone(number: int, code: str) -> None:
    said = asyncmy.errors.OperationalError(number, "near 'card 4111 1111' at 10.0.0.7")
    failure = explain_error(said, TARGET)
    assert failure.code == code
    assert failure.fix
    assert "4111" not in failure.message + failure.fix
    assert "10.0.0.7" not in failure.message + failure.fix


def test_broken_bytes_and_rows_without_end_have_codes_too() -> None:
    assert explain_error(PacketTooLarge(), TARGET).code == "result_too_large"
    assert explain_error(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), TARGET).code == "failed"
    assert explain_error(RuntimeError("odd"), TARGET).code == "connect_failed"


def test_a_name_is_quoted_where_it_has_to_be() -> None:
    assert quote_name("plain_1") == "plain_1"
    assert quote_name("re`ader") == "`re``ader`"
    assert "`re``ader`" in explain_connect_error(asyncmy.errors.OperationalError(1130, ""), TARGET).fix
