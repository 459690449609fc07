"""A target's address and TLS words in the driver's arguments."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent_core.errors import ToolFailed
from bot.tools.targets import Target

_PORT = 3306
_SOCKET_WORDS = ("unix_socket", "socket")
# libpq's names for files, which the Postgres targets use, beside those of MySQL's own clients.
_FILE_WORDS: Mapping[str, tuple[str, ...]] = {
    "ca": ("sslrootcert", "ssl-ca", "ssl_ca"),
    "cert": ("sslcert", "ssl-cert", "ssl_cert"),
    "key": ("sslkey", "ssl-key", "ssl_key"),
}
_TLS_WORDS: Mapping[str, str] = {
    "disabled": "disable",
    "preferred": "prefer",
    "required": "require",
    "verify_ca": "verify-ca",
    "verify_identity": "verify-full",
}
_TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_MODE_OPTIONS = ("ssl-mode", "ssl_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place to connect to, in the driver's words; ``options`` holds the password, so it is never shown."""

    options: Mapping[str, object] = field(repr=False)
    tls: ssl.SSLContext | None
    tls_optional: bool
    verified: bool


def list_places(target: Target) -> Iterator[Place]:
    """Yield the places of a target in the order in which they are tried: one for each of its hosts.

    Raises:
        ToolFailed: ``connect_failed``, the URL or ``sslmode`` holds what cannot be used; the message names it.
    """
    unknown = sorted(set(target.options) - _known_options())
    if unknown:
        raise _refuse(target, f"its url has parameters that are not known here: {', '.join(unknown)[:100]}")
    account: dict[str, object] = {
        "user": target.user or None,
        # As bytes, because the driver would encode a text in latin-1; clients of our character set send UTF-8.
        "password": b"" if target.password is None else target.password.get_secret_value().encode(),
        "database": target.database or None,
    }
    if path := _socket_path(target):
        yield Place(options={**account, "unix_socket": path}, tls=None, tls_optional=False, verified=True)
        return
    mode = _tls_mode(target)
    context = None if mode == "disable" else _make_context(target, mode)
    hosts = target.host.split(",") or [""]
    ports = target.port.split(",")
    for number, host in enumerate(hosts):
        port = ports[number] if len(ports) == len(hosts) else ports[0]
        if port and not (port.isdigit() and 0 < int(port) < 65_536):
            raise _refuse(target, "its port is not a number from 1 to 65535")
        yield Place(
            options={**account, "host": host or "localhost", "port": int(port or _PORT)},
            tls=context,
            tls_optional=mode in ("allow", "prefer"),
            verified=context is not None and context.verify_mode is ssl.CERT_REQUIRED,
        )


def _known_options() -> set[str]:
    return {*_SOCKET_WORDS, *_MODE_OPTIONS, *(word for words in _FILE_WORDS.values() for word in words)}


def _socket_path(target: Target) -> str:
    for word in _SOCKET_WORDS:
        if path := target.options.get(word):
            return path
    return target.host if target.host.startswith("/") else ""


def _tls_mode(target: Target) -> str:
    said = target.sslmode or next((v for word in _MODE_OPTIONS if (v := target.options.get(word))), "prefer")
    mode = _TLS_WORDS.get(said.lower(), said.lower())
    if mode not in _TLS_MODES:
        raise _refuse(target, f"its sslmode is none of {', '.join(_TLS_MODES)}")
    return mode


def _make_context(target: Target, mode: str) -> ssl.SSLContext:
    files = {
        name: next((path for word in words if (path := target.options.get(word))), None)
        for name, words in _FILE_WORDS.items()
    }
    try:
        # As libpq has it: a root certificate that is named is also used.
        if mode.startswith("verify") or (mode == "require" and files["ca"]):
            context = ssl.create_default_context(cafile=files["ca"])
            context.check_hostname = mode == "verify-full"
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if files["cert"]:
            context.load_cert_chain(files["cert"], keyfile=files["key"])
    except (OSError, ssl.SSLError):
        raise _refuse(target, "a certificate or key file that its url names cannot be read") from None
    return context


def _refuse(target: Target, why: str) -> ToolFailed:
    return ToolFailed(
        f"cannot connect to target {target.name!r}: {why}",
        code="connect_failed",
        fix="correct the target's url and sslmode",
    )
