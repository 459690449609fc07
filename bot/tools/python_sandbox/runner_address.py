"""Where a runner is, and what is said when it cannot be reached or refuses."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from bot.tools.python_sandbox.runner_wire import (
    PROTOCOL,
    PROTOCOL_HEADER,
    BadMessage,
    Refused,
    clean_text,
    parse_json,
)
from bot.tools.python_sandbox.types import SandboxUnavailable

_NOT_RUN = frozenset({"unavailable", "disk"})
_REASON_CHARS = 500
_LONGEST_WAIT_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a runner.

    Args:
        url: without a slash at its end.
        host: of it.
        encrypted: by TLS.
    """

    url: str
    host: str
    encrypted: bool

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read an address.

        Raises:
            SandboxUnavailable: it is none that may be used.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise SandboxUnavailable("sandbox.runner_url: it cannot be read; write https://HOST:PORT") from None
        if parts.scheme not in ("http", "https") or not host:
            raise SandboxUnavailable("sandbox.runner_url: it has to start with https:// or http://, and name a host")
        if parts.username is not None or parts.query or parts.fragment:
            raise SandboxUnavailable("sandbox.runner_url: only https://HOST:PORT/PATH; the token is runner_token")
        shown = f"[{host}]" if ":" in host else host
        base = f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
        address = cls(url=base, host=host, encrypted=parts.scheme == "https")
        if not address.encrypted and is_public(host):
            raise SandboxUnavailable(_in_the_clear(host))
        return address

    @property
    def transport(self) -> str:
        """How bytes travel, for people."""
        return "TLS" if self.encrypted else "http, not encrypted: keep it on this machine or a private network"


class PublicAddress(OSError):
    """A name stands for an address that http must not be used for."""


class PrivateResolver(AbstractResolver):
    """Looks names up, and takes none that stands for an address on the public Internet."""

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    @classmethod
    def choose(cls, address: Address) -> PrivateResolver | None:
        """Return one for addresses without TLS, which would show the token to whoever listens."""
        return None if address.encrypted else cls()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Look a name up.

        Raises:
            PublicAddress: it is on the public Internet.
        """
        found = await self._resolver.resolve(host, port, family)
        if any(is_public(result["host"]) for result in found):
            raise PublicAddress(_in_the_clear(host))
        return found

    async def close(self) -> None:
        """End."""
        await self._resolver.close()


def is_public(host: str) -> bool:
    """Tell whether a host is written as an address of the public Internet; a name is none."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_global
    except ValueError:
        return False


def _in_the_clear(host: str) -> str:
    return (
        f"sandbox.runner_url: {clean_text(host, 100)} is on the public Internet, and http would show it the token and "
        "the programs; use https://, or an address of a private network"
    )


# -- what went wrong -------------------------------------------------------------------------------


def explain(error: Exception, address: Address) -> str:
    """Say what went wrong on the way to a runner or in its answer, and what helps."""
    where = f"the runner at {address.url}"
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            text = (
                f"{where} shows a certificate that is not trusted ({clean_text(str(error), _REASON_CHARS)}); name its "
                "authority with SSL_CERT_FILE, or give it one that is valid for this host"
            )
        case aiohttp.ClientConnectorError(os_error=PublicAddress() as public):
            text = str(public)
        case aiohttp.ClientConnectorError(os_error=os_error):
            known = os_error.errno is not None and os_error.errno > 0
            reason = clean_text(os.strerror(os_error.errno or 0) if known else str(os_error), 200)
            text = f"{where} cannot be reached ({reason}); is `hermod sandbox serve` running there?"
        case TimeoutError():
            text = f"{where} did not answer in time; look at its log, or at the network between"
        case BadMessage():
            text = f"{where} gave an answer that cannot be used: {clean_text(str(error), _REASON_CHARS)}"
        case _:
            text = f"the connection to {where} broke ({type(error).__name__})"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a runner said instead of an answer.

    Args:
        text: for people.
        not_run: it is certain that nothing of the run was run.
    """

    text: str
    not_run: bool


def read_refusal(status: int, headers: Mapping[str, str], content: bytes, address: Address) -> Said:
    """Understand an answer that is none.

    Args:
        status, headers, content: of it.
        address: of the runner.
    """
    where = f"the runner at {address.url}"
    try:
        refused = parse_json(content, Refused)
    except BadMessage:
        refused = Refused(error="", message="")
    message = clean_text(refused.message, _REASON_CHARS)
    own = PROTOCOL_HEADER in headers
    match status:
        case 401 | 403:
            text = f"{where} refuses the token: sandbox.runner_token has to be the one that it was started with"
        case 429:
            text = f"{where} is busy; try again in {_read_wait(headers)} s"
        case 400 if refused.error == "protocol":
            other = clean_text(headers.get(PROTOCOL_HEADER, "another"), 10)
            text = (
                f"{where} speaks protocol {other} and this Hermod {PROTOCOL}: run both at one version "
                "(the image of the runner is the one of Hermod)"
            )
        case 404 | 405 if not own:
            text = (
                f"at {address.url} there is something else than a runner (HTTP {status}); is sandbox.runner_url right?"
            )
        case _ if 300 <= status < 400:
            text = f"{where} sends elsewhere (HTTP {status}), which is not followed; name the final address"
        case _:
            text = f"{where} answers: {message or f'HTTP {status}'}"
    not_run = 300 <= status < 500 and status != 409
    return Said(text=text, not_run=not_run or (own and refused.error in _NOT_RUN))


def _read_wait(headers: Mapping[str, str]) -> int:
    given = headers.get("Retry-After", "")
    wait_s = int(given) if given.isascii() and given.isdigit() and len(given) <= 4 else 5
    return min(max(wait_s, 1), _LONGEST_WAIT_S)
