"""A fresh store of every implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.storage import open_store
from bot.storage.base import Store
from tests.contract.store.backends import BACKENDS, Backend


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    assert isinstance(request.param, Backend)
    return request.param


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> str:
    return backend.build_url(tmp_path)


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
