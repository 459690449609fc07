"""What has to be said to asyncmy before it is let near a server. The only module that imports it; import it lazily.

Found in version 0.2.18: ``a; b`` runs by default; a password is sent in latin-1; a server that asks for the password
in clear text gets it, with or without TLS; TLS is asked for even where the server has none; a packet of any size is
read into memory; nothing bounds the wait for a server's greeting (``connection`` does).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from asyncmy.connection import Connection
from asyncmy.constants.CLIENT import MULTI_STATEMENTS, SSL
from asyncmy.cursors import Cursor, SSCursor
from asyncmy.errors import MySQLError, OperationalError

__all__ = ["GuardedConnection", "MySQLError", "OperationalError", "PacketTooLarge", "Rejected", "SSCursor"]

IN_READ_ONLY_TRANSACTION = 0x2000
"""SERVER_STATUS_IN_TRANS_READONLY of the status that every good answer carries
(https://dev.mysql.com/doc/dev/mysql-server/latest/mysql__com_8h.html, https://mariadb.com/kb/en/ok_packet/)."""

LARGEST_PACKET_BYTES = 64 * 1024 * 1024
"""The most that one row, or one part of it, of our own queries may have."""

CONNECT_ATTRIBUTE = "hermod"
"""``program_name`` of these connections, see performance_schema.session_connect_attrs."""


class Rejected(Exception):
    """We broke a connection attempt off: ``tls`` (the server has none) or ``clear`` (it wants the password itself)."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class PacketTooLarge(Exception):
    """The server began to send a row larger than the bound; the connection cannot be used any more."""


class _NoClearPassword:
    """Answers the server's wish for the password itself, which only a verified server may get."""

    def __init__(self, _: Connection) -> None:
        return

    def authenticate(self, _: object) -> object:
        raise Rejected("clear")


class GuardedConnection(Connection):
    """asyncmy's connection with one statement a message, bounded packets, and a password that stays hidden.

    Args:
        tls: None for a connection without; a context verifies or not, as it says.
        tls_optional: go on without TLS where the server has none.
        verified: the server shows who it is (a verified certificate, a Unix socket), so it may see the password.
        options: further arguments of asyncmy's ``Connection``.
    """

    # Set by the driver; its types do not name them.
    _client_flag: int
    _ssl_context: ssl.SSLContext | None
    server_capabilities: int
    server_status: int
    server_version: str

    def __init__(
        self, *, tls: ssl.SSLContext | None, tls_optional: bool, verified: bool, options: Mapping[str, object]
    ) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            ssl=tls, charset="utf8mb4", autocommit=None, program_name=CONNECT_ATTRIBUTE, **options
        )
        self._client_flag &= ~MULTI_STATEMENTS
        self._tls_optional = tls_optional
        self.most_packet_bytes = LARGEST_PACKET_BYTES
        refused = ("mysql_old_password",) if verified else ("mysql_old_password", "mysql_clear_password", "dialog")
        self._auth_plugin_map = dict.fromkeys(refused, _NoClearPassword)

    async def _get_server_information(self) -> None:
        """Read the greeting, and decide on TLS by what it says; nothing of ours was sent yet."""
        await super()._get_server_information()  # type: ignore[misc]
        if self._ssl_context is None or self.server_capabilities & SSL:
            return
        if not self._tls_optional:
            raise Rejected("tls")
        self._ssl_context = None
        self._client_flag &= ~SSL

    async def _fill_buffer(self, need: int) -> None:
        if need > self.most_packet_bytes:
            raise PacketTooLarge
        await super()._fill_buffer(need)  # type: ignore[misc]

    @property
    def is_read_only(self) -> bool:
        """The server said with its last good answer that a READ ONLY transaction is open."""
        return bool(self.server_status & IN_READ_ONLY_TRANSACTION)

    def buffered(self) -> Cursor:
        """A cursor that reads all rows."""
        return self.cursor(Cursor)

    def streaming(self) -> SSCursor:
        """A cursor that reads rows as they are asked for."""
        return self.cursor(SSCursor)  # type: ignore[return-value]  # it says Cursor for every kind
