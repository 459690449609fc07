"""Which address opens which storage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bot.storage import open_store
from bot.storage.base import StoreError
from bot.storage.postgres_failures import EXTRA

ROOT = Path(__file__).parents[3]


def _names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def test_a_relative_address_is_a_file_beside_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///mine.db")
    await store.open()
    await store.close()
    assert _names(tmp_path) == ["mine.db"]


async def test_an_absolute_address_has_four_slashes(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/mine.db")
    await store.open()
    await store.close()
    assert _names(tmp_path) == ["mine.db"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://hermod:hunter2@db/hermod", "mysql:// is not an address of a storage"),
        ("hunter2@hermod.db", "is not an address"),
        ("sqlite://hermod.db", "sqlite:// is not an address"),
        ("sqlite:///", "in a file"),
        ("sqlite:///:memory:", "in a file"),
        ("sqlite:///var/lib/", "in a file"),
        ("", "is not an address"),
    ],
)
def test_another_address_is_refused_with_what_to_use_instead(url: str, said: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert said in str(caught.value)
    assert "sqlite:///hermod.db" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://hermod:hunter2@db/hermod?hunter2=1",
        "postgresql://hermod:hunter%2x2@db/hermod",
        "postgres://hermod:hunter2@[db/hermod",
    ],
)
def test_an_address_that_libpq_cannot_read_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert "postgresql://USER:PASSWORD@HOST" in str(caught.value)
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_an_address_of_postgres_without_its_driver_says_which_extra_to_install(scheme: str) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from bot.storage import open_store\n"
        f"open_store('{scheme}://hermod:hunter2@db/hermod')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, timeout=20, check=False, capture_output=True, text=True
    )
    said = ended.stderr.strip().splitlines()[-1]
    assert said == f"bot.storage.base.StoreError: {EXTRA}"


def test_importing_the_protocol_loads_no_database_driver() -> None:
    program = (
        "import sys, bot.storage.base; sys.exit(any(m in sys.modules for m in ('sqlite3', 'aiosqlite', 'psycopg')))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=20, check=False)
    assert ended.returncode == 0
