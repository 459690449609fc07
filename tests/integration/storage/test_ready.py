"""What operators see of a Postgres that keeps Hermod's rows: ``hermod doctor`` and ``/readyz``."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp

from bot.http import HttpServer
from tests.integration.storage.conftest import Home, make_home, opened
from tests.integration.storage.test_connections import hang_up
from tests.servers.postgres import Lab

ROOT = Path(__file__).parents[3]
PATIENCE_S = 100


COMMANDS = ("sessions list", "jobs list", "usage", "audit verify", "feedback list", "trace abc")
"""Each of them reads the storage."""


async def ask_doctor(url: str) -> str:
    return await ask("doctor", url)


async def ask(command: str, url: str) -> str:
    environ = {"PATH": os.environ.get("PATH", os.defpath), "HERMOD_STORAGE__URL": url, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", *command.split()), cwd=ROOT, env=environ, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        said, complaints = await process.communicate()
    return (said + complaints).decode()


async def test_the_doctor_tells_how_the_storage_stands_without_its_password(home: Home) -> None:
    fine = await ask_doctor(home.url)
    assert "storage: 0 threads, 0 messages waiting" in fine
    ill = await ask_doctor(home.url.replace(home.secret, "hunter2"))
    assert "the server refused the user name or password; correct them in [storage] url" in ill
    assert not any(secret in fine + ill for secret in (home.secret, "hunter2"))


async def test_every_command_that_reads_the_storage_says_what_to_do_without_the_password(any_lab: Lab) -> None:
    home = await make_home(any_lab)
    said = await asyncio.gather(*(ask(command, home.url.replace(home.secret, "hunter2")) for command in COMMANDS))
    for command, words in zip(COMMANDS, said, strict=True):
        assert "the server refused the user name or password; correct them in [storage] url" in words, command
        assert "hunter2" not in words
        assert "Traceback" not in words


async def test_ready_follows_the_database(home: Home) -> None:
    async with opened(home.url) as store:
        server = HttpServer(host="127.0.0.1", port=0, store=store, adapters={}, alive=lambda: True, metrics=tuple)
        await server.start()
        try:
            async with aiohttp.ClientSession() as http:

                async def become(status: int) -> None:
                    """Ask until it answers so: on a busy machine a look takes longer than it may."""
                    async with asyncio.timeout(PATIENCE_S):
                        while True:
                            async with http.get(f"http://127.0.0.1:{server.port}/readyz") as answer:
                                if answer.status == status:
                                    return
                            await asyncio.sleep(0.05)

                await become(200)
                await home.run_sql(f"ALTER ROLE {home.role} CONNECTION LIMIT 0")
                await hang_up(home)
                await become(503)
                await home.run_sql(f"ALTER ROLE {home.role} CONNECTION LIMIT -1")
                await become(200)
        finally:
            await server.stop()
