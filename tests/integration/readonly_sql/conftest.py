"""The servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.mariadb import mariadb
from tests.servers.postgres import FIRST, SYSTEM, Lab, any_postgres, start_lab, stop_lab

__all__ = ["any_postgres", "mariadb", "postgres"]

# Nothing happens on it but what a test does, so that whatever changes is an attack's work: no vacuum, no checkpoint.
_QUIET = {"autovacuum": "off", "checkpoint_timeout": "1d", "max_wal_size": "16GB"}


@pytest.fixture(scope="session", params=[FIRST, SYSTEM])
def postgres(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A server of its own, of each version there is: thousands of odd statements would crowd the others' statistics."""
    lab = start_lab(request.param, settings=_QUIET)
    yield lab
    stop_lab(lab)
