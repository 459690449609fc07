"""A fresh store of every implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bot.storage import open_store
from bot.storage.base import Store
from tests.contract.store.backends import BACKENDS, SQLITE, Backend, start_postgres


@pytest.fixture(scope="session")
def postgres_backend() -> Iterator[Backend]:
    with start_postgres() as backend:
        yield backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    if request.param == "sqlite":
        return SQLITE
    backend: Backend = request.getfixturevalue("postgres_backend")
    return backend


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> Iterator[str]:
    made = backend.build_ready_url(tmp_path)
    yield made
    backend.drop(made)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def other(store: Store, url: str) -> AsyncIterator[Store]:
    """A second store on the same database, as another process would have it."""
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()
