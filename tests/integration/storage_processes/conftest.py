"""The server that keeps the rows."""

from __future__ import annotations

from tests.servers.postgres import any_postgres

__all__ = ["any_postgres"]
