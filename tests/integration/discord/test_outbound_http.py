"""The one way to the REST API: the library's calls and ours reach the same address."""

from __future__ import annotations

import discord
import pytest
from aiohttp import web
from discord.http import Route

from adapters.discord.http import DiscordHttp, Upload
from tests.servers.discord import DiscordServer


async def test_the_library_and_we_reach_the_address_that_is_set_and_nothing_global_is_changed() -> None:
    base = Route.BASE
    async with DiscordServer() as first, DiscordServer() as second:
        for server in (first, second):
            http = DiscordHttp(api_url=server.base_url)
            client = discord.Client(intents=discord.Intents.none())
            client.http = http
            try:
                await client.login(server.token)
                answer = await http.attempt(Route("GET", "/users/@me"))
            finally:
                await client.close()
            assert client.user is not None
            assert str(client.user.id) == server.bot_id
            assert answer.status == 200
            assert isinstance(answer.data, dict)
            assert answer.data["id"] == server.bot_id
            assert len(server.calls_to("GET /users/@me")) == 2
    assert base == Route.BASE


async def test_a_failed_attempt_is_made_once_and_its_answer_is_a_value() -> None:
    async with DiscordServer() as server:
        http = DiscordHttp(api_url=server.base_url, token=server.token)
        try:
            server.inject("GET /users/@me", http=502)
            answer = await http.attempt(Route("GET", "/users/@me"))
            server.inject("GET /users/@me", http=429, retry_after=60.0)
            limited = await http.attempt(Route("GET", "/users/@me"))
        finally:
            await http.close()
        assert answer.status == 502
        assert limited.status == 429
        assert isinstance(limited.data, dict)
        assert limited.data["retry_after"] == 60.0
        assert len(server.calls_to("GET /users/@me")) == 2


async def test_a_wrong_token_is_refused_by_login() -> None:
    async with DiscordServer() as server:
        client = discord.Client(intents=discord.Intents.none())
        client.http = DiscordHttp(api_url=server.base_url)
        with pytest.raises(discord.LoginFailure):
            await client.login("not.the.token")
        await client.close()


async def test_an_upload_keeps_bytes_and_name() -> None:
    async with DiscordServer() as server:
        http = DiscordHttp(api_url=server.base_url, token=server.token)
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=server.general)
        try:
            answer = await http.attempt(
                route, body={"content": "здесь"}, files=[Upload(name='r"é.csv', content=b"a\x00\xff")]
            )
        finally:
            await http.close()
        assert answer.status == 200
        (message,) = server.bot_messages(server.general)
        assert message["content"] == "здесь"
        (attachment,) = message["attachments"]
        assert attachment["filename"] == "ré.csv"
        assert server.blobs[attachment["id"]] == b"a\x00\xff"


async def test_a_connection_that_hangs_ends_with_a_timeout() -> None:
    async with DiscordServer() as server:
        http = DiscordHttp(api_url=server.base_url, token=server.token)
        server.inject("GET /users/@me", delay=30.0)
        try:
            with pytest.raises(TimeoutError):
                await http.attempt(Route("GET", "/users/@me"), timeout_s=0.2)
        finally:
            await http.close()


async def test_our_token_does_not_follow_a_redirect() -> None:
    asked: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/{tail:.*}", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    http = DiscordHttp(api_url=f"http://127.0.0.1:{runner.addresses[0][1]}/api/v10", token="secret.token")
    try:
        answer = await http.attempt(Route("GET", "/users/@me"))
    finally:
        await http.close()
        await runner.cleanup()
    assert answer.status == 302
    assert asked == ["/api/v10/users/@me"]
