"""The local workspace, driven from another process over its control port."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import aiohttp

from adapters.chat import Delivered, Reply
from adapters.slack.app import SlackAdapter
from tests.integration.slack.conftest import Inbox


async def test_a_workspace_of_its_own_process_is_driven_over_http() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.servers.slack", "--port", "0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.match(r"base_url=(\S+) bot_token=(\S+) app_token=(\S+)", line)
        assert found
        await _use(found[1], found[2], found[3])
    finally:
        process.terminate()
        await process.wait()


async def _use(base_url: str, bot_token: str, app_token: str) -> None:
    inbox = Inbox()
    adapter = SlackAdapter(bot_token, app_token, base_url)
    await adapter.start(inbox.accept)
    async with aiohttp.ClientSession(base_url.removesuffix("api/")) as http:

        async def control(verb: str, **arguments: Any) -> Any:
            async with http.post(f"_control/{verb}", json=arguments) as response:
                return await response.json()

        await control("set_knobs", copies={"mention": 2, "message": 2})
        ts = (await control("mention", text="hello"))["result"]
        await inbox.wait_for(lambda: len(inbox.messages) == 4)
        assert isinstance(await adapter.post(Reply(thread=inbox.messages[0].thread, text="hi", key="k")), Delivered)
        posted = (await control("bot_messages", channel="C1OPS", thread_ts=ts))["result"]
        assert [m["text"] for m in posted] == ["hi"]
        assert (await control("violations"))["result"] == []
        assert "unknown verb" in (await control("no_such_verb"))["error"]
        assert "knob" in (await control("set_knobs", nothing=1))["error"]
    await adapter.stop()
