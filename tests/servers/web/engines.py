"""The web as the library for keyless search sees it: a proxy that plays every search engine, under its own authority.

The library only speaks to fixed hosts over TLS, so it cannot be pointed at a local address; a proxy
(https://www.rfc-editor.org/rfc/rfc9110.html#name-connect) and a certificate that it is told to trust can.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOSTS = (
    *("html.duckduckgo.com", "search.brave.com", "www.mojeek.com", "www.startpage.com", "search.yahoo.com"),
    *("www.bing.com", "www.google.com", "en.wikipedia.org", "grokipedia.com", "yandex.com"),
)


@dataclass(slots=True)
class SearchEngines:
    """Search engines behind a proxy. ``async with`` it.

    Args:
        folder: for the certificate.
        found: title, address and text of what the engines find.
        status: of every answer.
        hang: engines accept a question and do not answer.
        asked: host and first line of every request.
    """

    folder: Path
    found: Sequence[tuple[str, str, str]] = ()
    status: int = 200
    hang: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    proxy: str = ""
    _server: asyncio.Server | None = None
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _context: ssl.SSLContext | None = None

    @property
    def ca_file(self) -> str:
        """The certificate to trust."""
        return str(self.folder / "ca.pem")

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with self._arrived, asyncio.timeout(60):
            await self._arrived.wait_for(lambda: len(self.asked) >= count)

    async def __aenter__(self) -> Self:
        key_file = write_certificate(self.folder)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.ca_file, key_file)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.proxy = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.closing(writer),
            contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError),
        ):
            method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
            host = target.decode().partition(":")[0]
            if method != b"CONNECT" or host not in HOSTS:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.drain()
            assert self._context is not None
            await writer.start_tls(self._context)
            await self._answer(host, reader, writer)

    async def _answer(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
        first = head.partition(b"\r\n")[0].decode()
        self.asked.append((host, f"{first} {body.decode()}".strip()))
        async with self._arrived:
            self._arrived.notify_all()
        if self.hang:
            await self._released.wait()
        page = self._page(host).encode() if self.status == 200 else b""
        size = f"Content-Length: {len(page)}"
        lines = (f"HTTP/1.1 {self.status} X", "Content-Type: text/html", size, "Connection: close", "", "")
        writer.write("\r\n".join(lines).encode() + page)
        await writer.drain()

    def _page(self, host: str) -> str:
        """Write what was found as the page of one engine; only one of them has results."""
        if host != "html.duckduckgo.com":
            return "<html><body></body></html>"
        rows = "".join(
            f'<div class="result__body"><h2>{html.escape(title)}</h2>'
            f'<a href="{html.escape(url)}">{html.escape(text)}</a></div>'
            for title, url, text in self.found
        )
        return f"<html><body>{rows}</body></html>"


def write_certificate(folder: Path) -> str:
    """Write a certificate for all engines, which trusts itself, and return the path of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "local search engines")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "key.pem")
