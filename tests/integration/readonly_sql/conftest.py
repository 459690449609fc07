"""The servers."""

from __future__ import annotations

from tests.servers.mariadb import mariadb

__all__ = ["mariadb"]
