"""The server of our own: it starts from each kind of programs, and nothing of it stays, however we end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bot.demo import binaries as binaries_module
from bot.demo.binaries import Binaries, PostgresUnavailable, find_account, find_binaries, make_folder
from bot.demo.postgres import EmbeddedPostgres
from tests.servers.postgres import FIRST, SYSTEM

REPOSITORY = Path(__file__).parents[3]

needs_postgres = pytest.mark.service("postgres")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another account")


async def fetch_value(url: str, query: str) -> object:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        row = await (await connection.execute(query.encode())).fetchone()
    assert row is not None
    return row[0]


def is_running(pid: int) -> bool:
    """True while a process is there and is more than an entry that waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def wait_gone(place: Path, pid: int | None = None) -> None:
    """Wait until nothing is left in ``place`` and a process has ended."""
    async with asyncio.timeout(60):
        while list_folders(place) or (pid is not None and is_running(pid)):  # noqa: ASYNC110 (others' ends have no event)
            await asyncio.sleep(0.05)


def list_folders(place: Path) -> list[Path]:
    return sorted(place.iterdir())


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of this test's own: short, and open to the account that root drops to."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as name:
        os.chmod(name, 0o1777)
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


def start_owner() -> subprocess.Popen[bytes]:
    """Another process that runs a server and tells its pid."""
    return subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


@pytest.mark.parametrize("kind", [FIRST, SYSTEM])
async def test_a_server_starts_answers_and_leaves_nothing_behind(kind: str) -> None:
    found = find_binaries() if kind == "first" else find_binaries(source="system")
    async with EmbeddedPostgres(binaries=found, tcp=True) as server:
        folder, pid = server.folder, server.pid
        for tcp in (False, True):
            version = await fetch_value(
                server.url(tcp=tcp), "select current_setting('server_version_num')::int / 10000"
            )
            assert version == found.major
        loaded = await fetch_value(server.url(), "select current_setting('shared_preload_libraries')")
        assert loaded == "pg_stat_statements,auto_explain"
        assert folder.stat().st_mode & 0o077 == 0
        assert not (folder / "superuser").exists()
    assert not folder.exists()
    assert not is_running(pid)
    await server.stop()  # twice is harmless


@needs_postgres
async def test_without_its_password_nobody_comes_in() -> None:
    async with EmbeddedPostgres(tcp=True) as server:
        for tcp in (False, True):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                await fetch_value(server.url(password="guess", tcp=tcp), "select 1")


@needs_postgres
@needs_root
async def test_root_runs_the_server_as_somebody_else() -> None:
    account = find_account()
    assert account is not None
    async with EmbeddedPostgres() as server:
        assert os.stat(f"/proc/{server.pid}").st_uid == account.uid != 0


@pytest.fixture
def locked_binaries(tmp_path: Path) -> Binaries:
    """A copy of the programs where only root may go."""
    found = find_binaries()
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o700)
    package = found.folder.parent.parent
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, locked / source.name, symlinks=True)
    folder = locked / package.name / found.folder.relative_to(package)
    return Binaries(folder=folder, major=found.major, source=found.source)


@needs_postgres
@needs_root
async def test_programs_under_a_folder_that_only_root_may_enter_are_copied(locked_binaries: Binaries) -> None:
    """An environment under /root is the usual case of it."""
    async with EmbeddedPostgres(binaries=locked_binaries) as server:
        assert server.binaries.folder.is_relative_to(server.folder)
        assert await fetch_value(server.url(), "select 1") == 1


@needs_postgres
async def test_a_server_restarts_on_its_data() -> None:
    async with EmbeddedPostgres() as server:
        async with await psycopg.AsyncConnection.connect(server.url(), autocommit=True) as admin:
            await admin.execute("create table kept (a int)")
        await fetch_value(server.url(), "insert into kept values (1) returning 1")
        await server.restart()
        assert await fetch_value(server.url(), "select count(*) from kept") == 1


@needs_postgres
async def test_a_server_that_cannot_start_says_why_and_leaves_nothing(place: Path) -> None:
    server = EmbeddedPostgres(settings={"shared_buffers": "nonsense"})
    with pytest.raises(PostgresUnavailable, match="shared_buffers"):
        await server.start()
    assert list_folders(place) == []


@needs_postgres
async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(place: Path) -> None:
    for delay_s in (0.0, 0.05, 0.3, 0.6):
        server = EmbeddedPostgres()
        task = asyncio.create_task(server.start())
        await asyncio.wait({task}, timeout=delay_s)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        else:
            await server.stop()
    assert list_folders(place) == []


def test_missing_programs_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries_module, "_candidates", lambda: [])
    with pytest.raises(PostgresUnavailable) as caught:
        find_binaries()
    assert "pip install 'hermod-bot[demo]'" in str(caught.value)
    assert "apt-get install postgresql" in str(caught.value)


def test_a_temporary_folder_with_a_long_name_is_not_used_for_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = make_folder(None)
    try:
        assert len(os.fsencode(folder / ".s.PGSQL.65535")) < 104
    finally:
        folder.rmdir()


OWNER = """
import asyncio, sys
from bot.demo.postgres import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres() as server:
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@needs_postgres
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_however_the_owner_ends_the_server_ends_and_its_folder_goes(number: signal.Signals, place: Path) -> None:
    with start_owner() as owner:
        try:
            assert owner.stdout is not None
            pid = int(await asyncio.wait_for(asyncio.to_thread(owner.stdout.readline), 60))
            assert is_running(pid)
            assert list_folders(place)
            owner.send_signal(number)
            await asyncio.wait_for(asyncio.to_thread(owner.wait), 60)
            await wait_gone(place, pid)
        finally:
            owner.kill()


@needs_postgres
async def test_an_owner_that_is_killed_while_the_cluster_is_made_leaves_nothing(place: Path) -> None:
    with start_owner() as owner:
        try:
            async with asyncio.timeout(60):
                while not any(place.glob("*/data/base")):  # noqa: ASYNC110, ASYNC240 (another process makes it)
                    await asyncio.sleep(0.005)
        finally:
            owner.kill()
    await wait_gone(place)
