"""A store of every implementation, and the jobs over it."""

from __future__ import annotations

import pytest

from bot.storage.base import Store
from tests.contract.store.conftest import backend, other, postgres_backend, store, url
from tests.integration.jobs.desk import Desk

__all__ = ["backend", "other", "postgres_backend", "store", "url"]


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)
