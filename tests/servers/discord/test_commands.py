from __future__ import annotations

from typing import Any

import discord
import pytest
from discord.http import Route

from tests.servers.discord import DiscordServer, Json
from tests.servers.discord.conftest import Http, ask, refusal, rest


def put(http: Http, server: DiscordServer, commands: list[Json], *, guild: str = "") -> Any:
    scope = f"/guilds/{guild}" if guild else ""
    return http.request(Route("PUT", f"/applications/{server.app_id}{scope}/commands"), json=commands)


def named(*names: str) -> list[Json]:
    return [{"name": name, "description": "x"} for name in names]


async def test_an_overwrite_keeps_the_ids_of_what_stays(server: DiscordServer, http: Http) -> None:
    first = await put(http, server, named("ask", "jobs"))
    second = await put(http, server, named("ask", "py"))
    assert [c["name"] for c in second] == ["ask", "py"]
    assert second[0]["id"] == first[0]["id"]
    assert second[0]["version"] != first[0]["version"]
    assert await ask(http, "GET", f"/applications/{server.app_id}/commands") == second
    await put(http, server, named("dev"), guild=server.guild_id)
    assert [c["name"] for c in server.commands[server.guild_id]] == ["dev"]
    assert server.command_puts == ["global", "global", server.guild_id]


async def test_two_hundred_creates_a_day_and_no_more() -> None:
    async with DiscordServer() as server, rest(server) as http:
        http.max_ratelimit_timeout = 30
        for day in range(2):
            for batch in range(2):
                await put(http, server, named(*(f"c{day}-{batch}-{n}" for n in range(100))))
            await put(http, server, named(f"c{day}-1-5"))  # what exists is not created
            with pytest.raises(discord.RateLimited, match=r"86[34]"):
                await put(http, server, named("one-more"))
            assert [c["name"] for c in server.commands["global"]] == [f"c{day}-1-5"]
            server.fast_forward(86_401)
        assert "more than 200" in server.violations[0]


async def test_single_commands_are_made_changed_and_deleted(server: DiscordServer, http: Http) -> None:
    path = f"/applications/{server.app_id}/commands"
    made = await ask(http, "POST", path, name="ask", description="one")
    again = await ask(http, "POST", path, name="ask", description="two")
    assert (again["id"], again["description"]) == (made["id"], "two")
    changed = await ask(http, "PATCH", f"{path}/{made['id']}", description="three")
    assert (changed["name"], changed["description"]) == ("ask", "three")
    assert await refusal(ask(http, "PATCH", f"{path}/{made['id']}", description="")) == (400, 50035)
    await ask(http, "DELETE", f"{path}/{made['id']}")
    assert server.commands["global"] == []
