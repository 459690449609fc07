"""Fetching from the web, for somebody who must not reach our own network through us.

Whatever a model or a page names, the connection goes to a public address or is not made: every name is resolved here,
refused when any of its addresses is not public, and connected to exactly as it was resolved, so that a second answer
of the name server changes nothing. Redirects are followed by hand, each through the same check
(https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from agent_core.errors import ToolFailed
from bot import __version__

MOST_REDIRECTS = 5
PORTS = (80, 443)
"""Web servers for the public; anything else on another port is nobody's page."""

_AGENT = f"Hermod/{__version__} (chat-ops agent)"
_NAME = re.compile(r"\.(?!\d*\.?$)(?!0x[0-9a-f]*\.?$)[^.]+\.?$")
"""The end of a name in the public DNS: below a domain, whose name is no number. What ends in a number is an address in
some way of writing (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 64 * 1024
_LONGEST_URL = 2_000
_LONGEST_LABEL = 63
"""Of a name's parts, in characters (RFC 1035, section 2.3.4)."""
_EXCUSE = 4 * 1024
"""Of what comes with a status of failure, in bytes."""

# 64:ff9b::/96 and 2002::/16 carry an IPv4 address that a gateway would connect to (RFC 6052, RFC 3056).
_NAT64, _SIX_TO_FOUR = ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("2002::/16")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""Before the last 32 bits: they are the IPv4 address that a tunnel would connect to (RFC 5214, section 6.1)."""
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # of Azure, seen by each of its machines, although its number is a public one
            # (https://learn.microsoft.com/en-us/azure/virtual-network/what-is-ip-address-168-63-129-16)
            "192.88.99.0/24",  # relays from 6to4, out of use (RFC 7526)
            "fec0::/10",  # site-local, out of use and perhaps still routed in somebody's network (RFC 3879)
            "3fff::/20",  # documentation (RFC 9637)
        ),
    )
)
"""What ``ipaddress`` takes for the public internet, and is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came. ``url`` is where it came from in the end; ``cut``: there was more than the bound."""

    url: str
    kind: str
    charset: str
    body: bytes
    cut: bool


class StatusFailed(ToolFailed):
    """A server answered with a status of failure: ``status``, and the beginning of what it said, in ``body``."""

    def __init__(self, message: str, *, status: int, body: bytes, fix: str, retryable: bool) -> None:
        super().__init__(message, code="fetch_failed", fix=fix, retryable=retryable)
        self.status = status
        self.body = body


class _Refused(OSError):
    """A name has an address that is not public."""


class _PublicResolver(AbstractResolver):
    """Resolves names to public addresses, and refuses those that have any other."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._inner = ThreadedResolver()
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See ``AbstractResolver``."""
        found = await self._inner.resolve(host, port, family)
        if f"{host}:{port}" not in self._allowed and not all(is_public(result["host"]) for result in found):
            raise _Refused(f"{host} is not on the public internet")
        return found

    async def close(self) -> None:
        """See ``AbstractResolver``."""
        await self._inner.close()


def is_public(address: str) -> bool:
    """Tell whether an IP address is of the public internet: not private, loopback, link-local, metadata or reserved."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        elif parsed in _NAT64:
            parsed = _last_of(parsed)
        elif parsed in _SIX_TO_FOUR:
            parsed = ipaddress.IPv4Address((int(parsed) >> 80) & 0xFFFF_FFFF)
        elif (int(parsed) >> 32) & 0xFFFF_FFFF in _ISATAP and not is_public(str(_last_of(parsed))):
            return False
    if any(parsed in network for network in _NEVER):
        return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def _last_of(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)


class WebClient:
    """Fetches from the web within bounds. ``async with`` it, or ``aclose`` it.

    Args:
        allowed: ``host:port`` of servers that may be reached although they are not public, such as a search service in
            the own network.
        timeout_s: for one fetch with all its redirects, in seconds.
        most_bytes: of a body, after decompression.
    """

    def __init__(
        self, *, allowed: Collection[str] = (), timeout_s: float = 15.0, most_bytes: int = 2 * 1024 * 1024
    ) -> None:
        self._allowed = frozenset(map(_name_host, allowed))
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._session: aiohttp.ClientSession | None = None

    async def get(
        self,
        url: str,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = None,
    ) -> Fetched:
        """Fetch one address.

        Args:
            url: ``http://`` or ``https://``.
            parameters: for the query string.
            headers: sent to the first host only, never along a redirect to another one.
            json: sent as the body of a POST instead of a GET.

        Raises:
            ToolFailed: ``bad_url``, ``address_refused``, ``fetch_failed`` (may be tried again where the cause may
                pass; a ``StatusFailed`` where the server said so), ``too_many_redirects``.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(_parse(url, parameters), dict(headers or {}), json)
        except TimeoutError:
            raise ToolFailed(
                f"the page did not come within {self._timeout_s:g} seconds", code="fetch_failed", retryable=True
            ) from None

    async def _follow(self, url: URL, headers: dict[str, str], json: object) -> Fetched:
        for _ in range(MOST_REDIRECTS + 1):
            self._check(url)
            found = await self._fetch(url, headers, json)
            if isinstance(found, Fetched):
                return found
            if found.origin() != url.origin():
                headers = {}
            url, json = found, None
        raise ToolFailed(f"more than {MOST_REDIRECTS} redirects", code="too_many_redirects", fix="try another page")

    def _check(self, url: URL) -> None:
        """What can be told without the name server."""
        host = url.raw_host or ""
        if f"{host}:{url.port}" in self._allowed:
            return
        literal = _is_address(host)
        if url.port not in PORTS or not (is_public(host) if literal else _NAME.search(host)):
            raise _refuse(url)

    async def _fetch(self, url: URL, headers: Mapping[str, str], json: object) -> Fetched | URL:
        method = "GET" if json is None else "POST"
        try:
            async with self._open().request(method, url, headers=headers, json=json, allow_redirects=False) as response:
                if response.status in _REDIRECTS and "Location" in response.headers:
                    return _join(url, response.headers["Location"])
                if response.status >= 400:
                    raise _fail_status(url, response.status, await response.content.read(_EXCUSE))
                body, cut = await self._read(response)
                return Fetched(
                    url=str(url), kind=response.content_type, charset=response.charset or "", body=body, cut=cut
                )
        except aiohttp.ClientConnectorDNSError as error:
            if isinstance(error.os_error, _Refused):
                raise _refuse(url) from None
            raise ToolFailed(
                f"there is no host {url.host!r}", code="fetch_failed", fix="check the address; search for the page"
            ) from None
        except aiohttp.InvalidURL:
            raise _refuse_text() from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ToolFailed(
                f"{url.host} could not be read: {type(error).__name__}", code="fetch_failed", retryable=True
            ) from None

    async def _read(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > self._most_bytes:
                return bytes(body[: self._most_bytes]), True
        return bytes(body), False

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_PublicResolver(self._allowed), use_dns_cache=False, limit=8, force_close=True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,  # a proxy of the environment would resolve names for us
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": _AGENT, "Accept-Language": "en,*;q=0.5"},
                timeout=aiohttp.ClientTimeout(total=None),  # ours is for all redirects together
            )
        return self._session

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _name_host(server: str) -> str:
    """Return a ``host:port`` as it stands in a parsed address: lower case, punycode, IPv6 in its short form."""
    host, _, port = server.rpartition(":")
    try:
        return f"{URL.build(scheme='http', host=host).raw_host}:{port}"
    except ValueError:
        return server  # no address has it, so nothing is allowed by it


def _parse(text: str, parameters: Mapping[str, str] | None) -> URL:
    try:
        url = URL(text.strip())
        if len(text) > _LONGEST_URL or url.scheme not in ("http", "https") or not url.host or url.port is None:
            raise ValueError(text)
        if url.user is not None or url.password is not None:
            raise ValueError("credentials")
        if not all(0 < len(label) <= _LONGEST_LABEL for label in (url.raw_host or "").removesuffix(".").split(".")):
            raise ValueError("no name")
        return url.update_query(parameters) if parameters else url
    except (ValueError, TypeError):
        raise _refuse_text() from None


def _join(url: URL, location: str) -> URL:
    try:
        return _parse(str(url.join(URL(location))), None)
    except ValueError:
        raise ToolFailed(f"{url.host} redirects to something that is no address", code="fetch_failed") from None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _refuse_text() -> ToolFailed:
    return ToolFailed(
        "this is no address of a web page",
        code="bad_url",
        fix="pass an http:// or https:// address without user and password, at most 2,000 characters",
    )


def _refuse(url: URL) -> ToolFailed:
    return ToolFailed(
        f"{url.host} is not a web server of the public internet, so nothing is fetched from it",
        code="address_refused",
        fix="pass the address of a public page; an operator can allow a server in [research] allow_hosts",
    )


def _fail_status(url: URL, status: int, body: bytes) -> StatusFailed:
    return StatusFailed(
        f"{url.host} answered with status {status}",
        status=status,
        body=body,
        fix="try another page" if status < 500 else "try again later, or another page",
        retryable=status in (429, 500, 502, 503, 504),
    )
