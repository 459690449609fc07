"""A server that speaks just enough of the protocol to misbehave, where the real one does not.

The packets are those of https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html; the official driver reads
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

OK = b"\x00\x00\x00\x02\x00\x00\x00"
ASK_FOR_THE_PASSWORD = b"\xfemysql_clear_password\x00"
ASK_FOR_A_FILE = b"\xfb/etc/hostname"
NONSENSE = b"\x03abc"

_SALT = b"abcdefgh", b"ijklmnopqrst\x00"
# PROTOCOL_41, CONNECT_WITH_DB, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH
_CAPABILITIES = 0x200 | 0x8 | 0x2000 | 0x8000 | 0x80000


@dataclass
class FakeServer:
    """What it was told, and how it answers: ``after_login`` to the account, ``answer`` to each command."""

    version: str = "8.0.99-fake"
    greet: bool = True
    after_login: bytes = OK
    answer: Callable[[bytes], bytes | None] = lambda command: OK
    received: list[bytes] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client until it hangs up."""
        try:
            if self.greet:
                _write(writer, 0, self._greeting())
            await self._read(reader)
            _write(writer, 2, self.after_login)
            while True:
                reply = self.answer(await self._read(reader))
                if reply is not None:
                    _write(writer, 1, reply)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return  # the client has hung up, or the test is over
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(4)
        body = await reader.readexactly(int.from_bytes(head[:3], "little"))
        self.received.append(body)
        return body

    def _greeting(self) -> bytes:
        low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
        return (
            b"\x0a"
            + self.version.encode()
            + b"\x00\x07\x00\x00\x00"
            + _SALT[0]
            + b"\x00"
            + low.to_bytes(2, "little")
            + b"\x2d\x02\x00"
            + high.to_bytes(2, "little")
            + bytes([21])
            + bytes(10)
            + _SALT[1]
            + b"mysql_native_password\x00"
        )


def _write(writer: asyncio.StreamWriter, sequence: int, body: bytes) -> None:
    writer.write(len(body).to_bytes(3, "little") + bytes([sequence]) + body)


@asynccontextmanager
async def run_fake(server: FakeServer) -> AsyncIterator[FakeServer]:
    """Listen on a free port of this machine."""
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


class Relay:
    """Passes bytes between clients and a real server, until it is told to hold everything back."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    def freeze(self) -> None:
        """Take bytes no more, in either direction; connections stay open and are still accepted."""
        self._open.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        try:
            await self._open.wait()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._to)
        except (ConnectionError, asyncio.CancelledError):
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, to_server))
                group.create_task(self._pass_on(from_server, writer))
        except* ConnectionError:
            pass

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._open.wait()
                writer.write(data)
        finally:
            writer.close()


@asynccontextmanager
async def run_relay(port: int) -> AsyncIterator[Relay]:
    """Stand in front of a server that listens on ``port``."""
    relay = Relay(port)
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
        await relay.serve(reader, writer)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay.port = listener.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
