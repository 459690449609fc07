from __future__ import annotations

import asyncio
import sys

import aiohttp
import pytest

from tests.servers.discord import DiscordServer, Json
from tests.servers.discord.conftest import Http, ask, refusal


async def test_faults_strike_by_rule(server: DiscordServer, http: Http) -> None:
    path = f"/channels/{server.general}/messages"
    server.inject(r"POST .*/messages$", http=403, code=50013, skip=1, times=2)
    seen = [await refusal(ask(http, "POST", path, content=str(n))) for n in range(4)]
    assert seen == [(0, 0), (403, 50013), (403, 50013), (0, 0)]
    assert [m["content"] for m in server.bot_messages(server.general)] == ["0", "3"]


async def test_a_call_can_fail_after_its_work_is_done(server: DiscordServer, http: Http) -> None:
    path = f"/channels/{server.general}/messages"
    server.inject("POST", http=400, after=True)
    assert await refusal(ask(http, "POST", path, content="x")) == (400, 0)
    server.inject("POST", drop=True, after=True)
    with pytest.raises(aiohttp.ClientError):
        await ask(http, "POST", path, content="y")
    server.inject("POST", drop=True)
    with pytest.raises(aiohttp.ClientError):
        await ask(http, "POST", path, content="z")
    assert [m["content"] for m in server.bot_messages(server.general)] == ["x", "y"]
    assert [call.status for call in server.calls_to("POST")] == [400, 0, 0]


async def test_discord_py_waits_for_a_429_and_tries_again(server: DiscordServer, http: Http) -> None:
    server.inject("GET /users/@me", http=429, retry_after=0.05)
    await ask(http, "GET", "/users/@me")
    assert [call.status for call in server.calls_to("GET /users/@me")][-2:] == [429, 200]


async def test_an_answer_can_be_late(server: DiscordServer, http: Http) -> None:
    server.inject("GET /users/@me", delay=0.2, only_delay=True)
    before = asyncio.get_running_loop().time()
    await ask(http, "GET", "/users/@me")
    assert asyncio.get_running_loop().time() - before >= 0.2


async def test_a_body_of_another_shape_is_refused_and_noted(server: DiscordServer, http: Http) -> None:
    call = ask(http, "POST", f"/channels/{server.general}/messages", content="x", message_reference="y")
    assert await refusal(call) == (400, 50035)
    assert "cannot be read" in server.violations[0]


async def test_it_runs_alone_and_is_driven_from_outside() -> None:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.servers.discord", "--port", "0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert running.stdout is not None
        line = (await asyncio.wait_for(running.stdout.readline(), 60)).decode()
        told = dict(pair.split("=", 1) for pair in line.split())
        origin = told["base_url"].removesuffix("/api/v10")
        async with aiohttp.ClientSession() as session:

            async def verb(verb_: str, **arguments: object) -> Json:
                async with session.post(f"{origin}/_control/{verb_}", json=arguments) as answer:
                    found: Json = await answer.json()
                    return found

            mid = (await verb("say", content="hello", files={"a.txt": "abc"}))["result"]
            url = f"{told['base_url']}/channels/{told['channel']}/messages/{mid}"
            headers = {"Authorization": f"Bot {told['token']}", "User-Agent": "DiscordBot (x, 1)"}
            async with session.get(url, headers=headers) as answer:
                assert (await answer.json())["content"] == "hello"
            assert (await verb("messages", channel=told["channel"]))["result"][0]["id"] == mid
            assert (await verb("pings"))["result"] == []
            assert (await verb("calls"))["result"][0]["status"] == 200
            assert "not registered" in (await verb("slash", name="none"))["error"]
            assert (await verb("stop"))["error"] == "unknown verb stop"
            assert "no such knob" in (await verb("set_knobs", magic=1))["error"]
            await verb("set_knobs", strict_rate_limits=True)
    finally:
        running.terminate()
        await running.wait()
