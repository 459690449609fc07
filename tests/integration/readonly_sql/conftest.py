"""The servers."""

from __future__ import annotations

from tests.servers.mariadb import mariadb
from tests.servers.postgres import any_postgres, postgres

__all__ = ["any_postgres", "mariadb", "postgres"]
