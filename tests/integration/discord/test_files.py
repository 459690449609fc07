"""Files that people attach: fetched from Discord's own hosts, never more than is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from adapters.chat import FileRef
from adapters.discord.files import CDN_HOSTS, fetch_bytes, may_ask
from adapters.discord.http import DiscordHttp
from tests.integration.discord.outbound_desk import Desk, open_desk
from tests.servers.discord import DiscordServer


async def attach(server: DiscordServer, content: bytes = b"a,b\n1,2\n") -> FileRef:
    """A file of a message, as the incoming side tells of it."""
    message = await server.say("look", files={"rows.csv": content})
    (attachment,) = server.messages(server.general)[-1]["attachments"]
    return FileRef(
        id=attachment["id"],
        name="rows.csv",
        size=len(content),
        address=f"{server.general}/{message}/{attachment['id']}",
    )


@pytest.fixture
async def desk(server: DiscordServer) -> AsyncIterator[Desk]:
    async with open_desk(server) as opened:
        yield opened


async def test_a_file_is_fetched_whenever_it_is_needed(server: DiscordServer, desk: Desk) -> None:
    """Its address of the first day is long over; a new one is asked for."""
    file = await attach(server)
    server.fast_forward(10 * 86_400.0)
    assert await desk.outbound.fetch_file(file, max_bytes=100) == b"a,b\n1,2\n"


async def test_never_more_than_is_wanted_whatever_the_size_says(server: DiscordServer, desk: Desk) -> None:
    file = await attach(server, b"x" * 300_000)
    assert await desk.outbound.fetch_file(file, max_bytes=299_999) is None
    liar = FileRef(id=file.id, name=file.name, size=1, address=file.address)
    assert await desk.outbound.fetch_file(liar, max_bytes=299_999) is None
    assert await desk.outbound.fetch_file(liar, max_bytes=300_000) == b"x" * 300_000


async def test_a_file_that_is_said_to_be_too_large_is_not_even_asked_for(server: DiscordServer, desk: Desk) -> None:
    file = await attach(server)
    assert await desk.outbound.fetch_file(file, max_bytes=3) is None
    assert server.calls == []


async def test_a_file_whose_message_is_gone_is_none(server: DiscordServer, desk: Desk) -> None:
    file = await attach(server)
    await server.delete(file.address.split("/")[1])
    assert await desk.outbound.fetch_file(file, max_bytes=100) is None


@pytest.mark.parametrize(
    "address",
    ["", "1/2", "1/2/3/4", "1/2/x", "https://cdn.discordapp.com/attachments/1/2/rows.csv", "../../users/@me", "1//3"],
)
async def test_an_address_that_is_none_is_not_asked_for(server: DiscordServer, desk: Desk, address: str) -> None:
    assert await desk.outbound.fetch_file(FileRef(id="3", name="x", address=address), max_bytes=100) is None
    assert server.calls == []


async def test_another_file_of_the_message_is_not_taken_for_it(server: DiscordServer, desk: Desk) -> None:
    file = await attach(server)
    channel, message, _ = file.address.split("/")
    other = FileRef(id="1", name="x", address=f"{channel}/{message}/1")
    assert await desk.outbound.fetch_file(other, max_bytes=100) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://cdn.discordapp.com/a",
        "https://cdn.discordapp.com:8443/a",
        "https://cdn.discordapp.com.evil.example/a",
        "https://evil.example/cdn.discordapp.com",
        "https://user:pass@cdn.discordapp.com/a",
        "https://cdn.discordapp.com@evil.example/a",
        "ftp://cdn.discordapp.com/a",
        "file:///etc/passwd",
        "https://169.254.169.254/latest",
        "https://[::1",
        "",
    ],
)
async def test_no_host_but_discords_is_asked(url: str) -> None:
    http = DiscordHttp(api_url="https://discord.example/api/v10")
    assert not may_ask(url, api_url=http.api_url, hosts=CDN_HOSTS)
    assert isinstance(await fetch_bytes(http, url, max_bytes=10), str)
    await http.close()


def test_discords_own_hosts_may_be_asked() -> None:
    api = "https://discord.com/api/v10"
    assert may_ask("https://cdn.discordapp.com/attachments/1/2/a?ex=1&is=2&hm=3", api_url=api, hosts=CDN_HOSTS)
    assert may_ask("https://media.discordapp.net/attachments/1/2/a", api_url=api, hosts=CDN_HOSTS)


class Elsewhere:
    """A host of files that does what it should not."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if request.path == "/moved":
            raise web.HTTPFound("/secret")
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):  # for ever, as far as the client is concerned
            await response.write(b"x" * 65_536)
        return response


@pytest.fixture
async def elsewhere() -> AsyncIterator[Elsewhere]:
    host = Elsewhere()
    app = web.Application()
    app.router.add_get("/{name}", host.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield host
    await runner.cleanup()


async def test_a_redirect_is_not_followed_and_our_token_stays_here(elsewhere: Elsewhere) -> None:
    http = DiscordHttp(api_url=elsewhere.url, token="secret.token")
    assert await fetch_bytes(http, f"{elsewhere.url}/moved", max_bytes=10) == "HTTP 302"
    await http.close()
    (request,) = elsewhere.asked
    assert "Authorization" not in request.headers


async def test_a_file_without_an_end_is_given_up_at_its_limit(elsewhere: Elsewhere) -> None:
    http = DiscordHttp(api_url=elsewhere.url)
    assert await fetch_bytes(http, f"{elsewhere.url}/endless", max_bytes=1_000_000) == "it has more than 1000000 bytes"
    await http.close()
