"""What operators see of a Postgres that keeps Hermod's rows: ``hermod doctor`` and ``/readyz``."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp

from bot.http import HttpServer
from tests.integration.storage.conftest import Home, opened
from tests.integration.storage.test_connections import hang_up

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60


async def ask_doctor(url: str) -> str:
    environ = {"PATH": os.environ.get("PATH", os.defpath), "HERMOD_STORAGE__URL": url, "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bot", "doctor", cwd=ROOT, env=environ, stdout=PIPE, stderr=PIPE
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
