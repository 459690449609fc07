"""The servers."""

from __future__ import annotations

from tests.servers.mariadb import mariadb
from tests.servers.postgres import postgres

__all__ = ["mariadb", "postgres"]
