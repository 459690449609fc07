from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import discord
import pytest

from tests.servers.discord import DiscordServer, Interaction, Json
from tests.servers.discord.conftest import Bot, Http, ask, button, connected, refusal, row

Used = discord.Interaction[Any]

OPTIONS: list[Json] = [
    {"type": 3, "name": "question", "description": "q", "required": True, "min_length": 2, "max_length": 10},
    {"type": 3, "name": "target", "description": "t", "autocomplete": True},
    {"type": 3, "name": "sort", "description": "s", "choices": [{"name": "By time", "value": "time"}]},
    {"type": 4, "name": "limit", "description": "l", "min_value": 1, "max_value": 50},
    {"type": 10, "name": "share", "description": "f"},
    {"type": 5, "name": "all", "description": "a"},
    {"type": 6, "name": "who", "description": "w"},
    {"type": 7, "name": "where", "description": "c", "channel_types": [0]},
    {"type": 8, "name": "role", "description": "r"},
    {"type": 11, "name": "file", "description": "f"},
]
COMMANDS: list[Json] = [
    {"name": "ask", "description": "asks", "options": OPTIONS},
    {
        "name": "jobs", "description": "jobs",
        "options": [{"type": 1, "name": "run", "description": "runs",
                     "options": [{"type": 3, "name": "name", "description": "n"}]}],
    },
]  # fmt: skip


async def register(server: DiscordServer, http: Http, *commands: Json) -> None:
    path = f"/applications/{server.app_id}/commands"
    await http.request(discord.http.Route("PUT", path), json=list(commands or COMMANDS))


async def waiting(server: DiscordServer, http: Http, **place: Any) -> Interaction:
    """A command that nobody has answered."""
    await register(server, http)
    return await server.slash("ask", {"question": "why"}, wait=False, **place)


def respond(http: Http, used: Interaction, kind: int, **data: Any) -> Awaitable[Any]:
    return ask(http, "POST", f"/interactions/{used.id}/{used.token}/callback", type=kind, data=data)


def hook(server: DiscordServer, used: Interaction, tail: str = "") -> str:
    return f"/webhooks/{server.app_id}/{used.token}{tail}"


async def test_discord_py_reads_the_typed_options(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        await bot.http.bulk_upsert_global_commands(int(server.app_id), COMMANDS)
        given: Json = {
            "question": "why", "sort": "time", "limit": 5, "share": 0.5, "all": True, "who": server.bob,
            "where": server.general, "role": server.guild_id, "file": b"abc",
        }  # fmt: skip

        async def answer(interaction: Used) -> None:
            await interaction.response.send_message("done", ephemeral=True)

        bot.answer = answer
        used = await server.slash("ask", given, user=server.bob)
        assert server.shown(used)[0]["content"] == "done"
        (seen,) = bot.used
        assert seen.data is not None
        data: Any = seen.data
        assert {o["name"]: o["value"] for o in data["options"]} == given | {"file": data["options"][-1]["value"]}
        assert set(data["resolved"]) == {"users", "members", "channels", "roles", "attachments"}
        assert (seen.user.name, seen.guild_id) == ("bob", int(server.guild_id))
        assert seen.permissions.send_messages
        assert not seen.permissions.manage_threads
        nested = await server.slash("jobs run", {"name": "daily"})
        assert nested.response is not None
        data = bot.used[1].data
        assert data["options"][0]["options"] == [{"name": "name", "type": 3, "value": "daily"}]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("none", {}, "not registered"),
        ("jobs", {}, "needs a sub-command"),
        ("jobs stop", {}, "no sub-command"),
        ("ask", {}, "needs"),
        ("ask", {"question": "why", "other": 1}, "no options"),
        ("ask", {"question": "w"}, "length"),
        ("ask", {"question": "w" * 11}, "length"),
        ("ask", {"question": "why", "limit": "5"}, "not of its type"),
        ("ask", {"question": "why", "limit": True}, "not of its type"),
        ("ask", {"question": "why", "limit": 51}, "out of bounds"),
        ("ask", {"question": "why", "sort": "size"}, "none of its choices"),
        ("ask", {"question": "why", "who": "5"}, "there is no"),
    ],
)
async def test_people_can_only_enter_what_is_registered(
    server: DiscordServer, http: Http, name: str, options: Json, message: str
) -> None:
    await register(server, http)
    with pytest.raises(LookupError, match=message):
        await server.slash(name, options)


async def test_commands_need_their_place_and_permission(server: DiscordServer, http: Http) -> None:
    await register(
        server, http,
        {"name": "here", "description": "x", "contexts": [0]},
        {"name": "admin", "description": "x", "default_member_permissions": str(1 << 4)},
    )  # fmt: skip
    with pytest.raises(LookupError, match="not registered"):
        await server.slash("here", channel=server.dm_with(), wait=False)
    with pytest.raises(LookupError, match="not allowed"):
        await server.slash("admin", user=server.bob, wait=False)
    await server.slash("admin", user=server.alice, wait=False)  # the owner
    server.deny(server.general, "USE_APPLICATION_COMMANDS", user=server.bob)
    with pytest.raises(LookupError, match="not allowed"):
        await server.slash("here", user=server.bob, wait=False)
    thread = await server.open_thread("old")
    await server.change_thread(thread, archived=True)
    with pytest.raises(LookupError, match="archived"):
        await server.slash("here", channel=thread, wait=False)


async def test_a_direct_message_has_a_user_and_no_guild(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        await bot.http.bulk_upsert_global_commands(int(server.app_id), COMMANDS)
        await server.slash("ask", {"question": "why"}, channel=server.dm_with(), wait=False)
        await server.wait_until(lambda: bot.used)
        assert (bot.used[0].guild_id, bot.used[0].user.id) == (None, int(server.alice))


async def test_an_answer_comes_within_three_seconds_and_once(server: DiscordServer, http: Http) -> None:
    used = await waiting(server, http)
    server.fast_forward(3.1)
    assert await refusal(respond(http, used, 5)) == (404, 10062)
    assert server.late_answers == [used.id]
    used = await waiting(server, http)
    assert await refusal(respond(http, used, 5)) == (0, 0)
    assert await refusal(respond(http, used, 4, content="x")) == (400, 40060)


async def test_silence_is_what_the_person_sees() -> None:
    async with DiscordServer(interaction_deadline=0.05) as server:
        server.commands["global"] = [{"id": "1", "name": "ask", "type": 1, "description": "x"}]
        used = await server.slash("ask")
        assert used.error == "The application did not respond"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (4, {"content": "x" * 2001}),
        (4, {"content": ""}),
        (6, {}),
        (7, {"content": "x"}),
        (8, {"choices": []}),
        (9, {"title": "t", "custom_id": "", "components": [row(button())]}),
        (9, {"title": "t" * 46, "custom_id": "c", "components": [row(button())]}),
        (9, {"title": "t", "custom_id": "c", "components": []}),
        (99, {}),
    ],
)
async def test_a_wrong_answer_is_refused_and_a_right_one_still_possible(
    server: DiscordServer, http: Http, kind: int, data: Json
) -> None:
    used = await waiting(server, http)
    status, code = await refusal(respond(http, used, kind, **data))
    assert (status, code) in {(400, 50035), (400, 50006)}
    assert await refusal(respond(http, used, 4, content="right")) == (0, 0)
    assert [m["content"] for m in server.shown(used)] == ["right"]


async def test_a_deferred_answer_is_filled_by_an_edit_or_by_the_first_follow_up(
    server: DiscordServer, http: Http
) -> None:
    for fill in ("edit", "follow-up"):
        used = await waiting(server, http)
        await respond(http, used, 5, flags=64 | 4)
        (deferred,) = server.shown(used)
        assert (deferred["flags"], deferred["content"]) == (64 | 128, "")
        if fill == "edit":
            await ask(http, "PATCH", hook(server, used, "/messages/@original"), content="answer")
        else:
            await ask(http, "POST", hook(server, used), content="answer", flags=0)
        (answer,) = server.shown(used)
        assert (answer["id"], answer["flags"], answer["content"]) == (deferred["id"], 64, "answer")
        more = await ask(http, "POST", hook(server, used), content="more")
        assert more["flags"] == 0
        assert [m["content"] for m in server.shown(used)] == ["answer", "more"]


async def test_a_private_answer_is_for_one_and_for_the_token_only(server: DiscordServer, http: Http) -> None:
    used = await waiting(server, http, user=server.bob)
    await respond(http, used, 4, content="secret", flags=64)
    assert [m["content"] for m in server.messages(server.general, seen_by=server.bob)] == ["secret"]
    assert server.messages(server.general, seen_by=server.alice) == []
    assert await ask(http, "GET", f"/channels/{server.general}/messages") == []
    path = f"/channels/{server.general}/messages/{used.message}"
    assert await refusal(ask(http, "PATCH", path, content="x")) == (404, 10008)
    assert (await ask(http, "GET", hook(server, used, "/messages/@original")))["content"] == "secret"
    await ask(http, "DELETE", hook(server, used, "/messages/@original"))
    assert server.messages(server.general) == []


async def test_a_token_lives_fifteen_minutes(server: DiscordServer, http: Http) -> None:
    used = await waiting(server, http)
    assert await refusal(ask(http, "POST", hook(server, used), content="early")) == (404, 10015)
    await respond(http, used, 5)
    server.fast_forward(899)
    await ask(http, "PATCH", hook(server, used, "/messages/@original"), content="in time")
    server.fast_forward(2)
    late = ask(http, "PATCH", hook(server, used, "/messages/@original"), content="late")
    assert await refusal(late) == (401, 50027)
    assert await refusal(ask(http, "POST", hook(server, used), content="late")) == (401, 50027)


async def test_a_token_reaches_its_own_messages_only(server: DiscordServer, http: Http) -> None:
    used = await waiting(server, http)
    await respond(http, used, 4, content="x")
    other = await server.say("other", user=server.bot_id)
    assert await refusal(ask(http, "PATCH", hook(server, used, f"/messages/{other}"), content="x")) == (404, 10008)


async def test_no_permission_is_needed_to_answer_but_a_locked_thread_refuses(server: DiscordServer, http: Http) -> None:
    server.deny(server.general, "VIEW_CHANNEL")
    used = await waiting(server, http)
    assert await refusal(respond(http, used, 4, content="x")) == (0, 0)
    server.allow(server.general, "VIEW_CHANNEL")
    thread = await server.open_thread("talk")
    used = await waiting(server, http, channel=thread)
    await server.change_thread(thread, locked=True)
    assert await refusal(respond(http, used, 5)) == (403, 50083)


async def test_answers_ping_people_only_by_default(server: DiscordServer, http: Http) -> None:
    used = await waiting(server, http)
    await respond(http, used, 4, content=f"@everyone <@{server.bob}>")
    await ask(http, "POST", hook(server, used), content=f"<@{server.bob}>", allowed_mentions={"parse": []})
    await ask(http, "PATCH", hook(server, used, "/messages/@original"), content="@here", allowed_mentions={"parse": []})
    (ping,) = server.pings
    assert (ping.via, ping.users, ping.everyone) == ("callback", frozenset({server.bob}), frozenset())


async def test_choices_are_asked_for_while_one_types(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        await bot.http.bulk_upsert_global_commands(int(server.app_id), COMMANDS)
        outcome: list[int] = []

        def offer(count: int) -> Callable[[Used], Awaitable[None]]:
            async def answer(interaction: Used) -> None:
                names = [discord.app_commands.Choice(name=f"n{n}", value=f"v{n}") for n in range(count)]
                try:
                    await interaction.response.autocomplete(names)
                except discord.HTTPException as error:
                    outcome.append(error.code)

            return answer

        bot.answer = offer(25)
        assert len(await server.autocomplete("ask", "target", "sh")) == 25
        data: Any = bot.used[0].data
        assert data["options"] == [{"name": "target", "type": 3, "value": "sh", "focused": True}]
        bot.answer = offer(26)
        typing = asyncio.create_task(server.autocomplete("ask", "target", "sh"))
        await server.wait_until(lambda: outcome == [50035])
        assert not typing.done()
        typing.cancel()
        with pytest.raises(LookupError, match="no autocomplete"):
            await server.autocomplete("ask", "question", "sh")


async def test_buttons_change_their_message_or_answer_in_a_new_one(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        rows = [row(button("yes"), button("no", disabled=True), button(style=5, url="https://ex.test", custom_id=None))]
        rows[0]["components"][2].pop("custom_id")
        posted = await ask(
            bot.http, "POST", f"/channels/{server.general}/messages", content="Sure?", components=rows
        )  # fmt: skip

        async def answer(interaction: Used) -> None:
            assert interaction.message is not None
            if interaction.message.content == "Sure?":
                await interaction.response.edit_message(content="Done.", view=None)
            else:
                await interaction.response.defer()
                await interaction.followup.send("too late", ephemeral=True)

        bot.answer = answer
        with pytest.raises(LookupError, match="cannot be used"):
            await server.click(posted["id"], "no")
        await server.click(posted["id"], "yes", user=server.bob)
        (message,) = server.bot_messages(server.general)
        assert (message["content"], message["components"]) == ("Done.", [])
        with pytest.raises(LookupError, match="no component"):
            await server.click(posted["id"], "yes")
        assert bot.used[0].user.id == int(server.bob)


async def test_a_form_comes_back_filled_in(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        await bot.http.bulk_upsert_global_commands(int(server.app_id), COMMANDS)

        class Form(discord.ui.Modal, title="Why?"):
            reason: discord.ui.TextInput[Form] = discord.ui.TextInput(label="Reason", custom_id="reason")

        async def answer(interaction: Used) -> None:
            if interaction.type is discord.InteractionType.modal_submit:
                await interaction.response.send_message("thanks")
            else:
                await interaction.response.send_modal(Form())

        bot.answer = answer
        asked = await server.slash("ask", {"question": "why"})
        sent = await server.submit_modal(asked, {"reason": "because"})
        assert [m["content"] for m in server.shown(sent)] == ["thanks"]


async def test_two_sessions_of_a_shard_both_get_an_interaction(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as first, connected(server, Bot(server)) as second:
        await first.http.bulk_upsert_global_commands(int(server.app_id), COMMANDS)
        codes: list[int] = []

        async def answer(interaction: Used) -> None:
            try:
                await interaction.response.defer()
            except discord.HTTPException as error:
                codes.append(error.code)

        first.answer = second.answer = answer
        await server.slash("ask", {"question": "why"})
        await server.wait_until(lambda: codes == [40060])


async def test_with_an_endpoint_in_the_portal_the_gateway_carries_no_interaction(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        await bot.http.bulk_upsert_global_commands(int(server.app_id), COMMANDS)
        server.set_knobs(interactions_endpoint_url="https://ex.test/", interaction_deadline=0.05)
        used = await server.slash("ask", {"question": "why"})
        assert used.error == "The application did not respond"
        await server.say("still here")
        await server.wait_until(lambda: bot.heard)
        assert bot.used == []
        assert (await ask(bot.http, "GET", "/applications/@me"))["interactions_endpoint_url"] == "https://ex.test/"
