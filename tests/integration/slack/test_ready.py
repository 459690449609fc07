"""``/readyz`` says whether Slack can reach Hermod at this moment, whichever way events arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from adapters.slack.app import SlackAdapter
from bot.http import HttpServer
from bot.storage import open_store
from tests.integration.slack.conftest import Inbox, both_open, build_adapter
from tests.servers.slack import SlackServer


class Port:
    """The HTTP port of a process with one adapter."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self.http = url, http

    async def get(self, path: str) -> tuple[int, object]:
        async with self.http.get(f"{self.url}{path}") as answer:
            return answer.status, (await answer.json()).get("not_connected")

    async def wait_for(self, status: int) -> None:
        async with asyncio.timeout(30):
            while (await self.get("/readyz"))[0] != status:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(folder: Path, adapter: SlackAdapter) -> AsyncIterator[Port]:
    store = open_store(f"sqlite:///{folder / 'ready.db'}")
    await store.open()
    server = HttpServer(
        host="127.0.0.1", port=0, store=store, adapters={"slack": adapter}, alive=lambda: True, metrics=tuple
    )
    await server.start()
    try:
        async with aiohttp.ClientSession() as http:
            yield Port(f"http://127.0.0.1:{server.port}", http)
    finally:
        await adapter.stop()
        await server.stop()
        await store.close()


NOT_YET: tuple[int, object] = (503, ["slack"])
READY: tuple[int, object] = (200, [])


async def test_by_socket_it_is_ready_while_a_websocket_is_open(
    server: SlackServer, inbox: Inbox, tmp_path: Path
) -> None:
    adapter = build_adapter(server)
    async with serving(tmp_path, adapter) as port:
        assert await port.get("/readyz") == NOT_YET
        await adapter.start(inbox.accept)
        assert await port.get("/readyz") == READY
        await both_open(server)  # one that is just being opened would survive what follows
        server.inject("apps.connections.open", http=500, times=10_000)
        await server.kill_sockets()
        await port.wait_for(503)
        assert (await port.get("/healthz"))[0] == 200  # the process is well; restarting it would not help
        server.faults.clear()
        await port.wait_for(200)
        await adapter.stop()
        assert await port.get("/readyz") == NOT_YET


async def test_over_http_it_is_ready_as_soon_as_it_is_known_who_we_are(
    server: SlackServer, inbox: Inbox, tmp_path: Path
) -> None:
    adapter = build_adapter(server, mode="http")
    server.inject("auth.test", http=500)
    async with serving(tmp_path, adapter) as port:
        await adapter.start(inbox.accept)
        assert await port.get("/readyz") == NOT_YET
        await port.wait_for(200)  # asked again by itself
        await adapter.stop()
        assert await port.get("/readyz") == NOT_YET
