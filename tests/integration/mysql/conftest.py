"""The server that the tests of this folder share."""

from tests.servers.mariadb import mariadb

__all__ = ["mariadb"]
