from __future__ import annotations

import io
from typing import Any

import aiohttp
import discord
import pytest
from discord.http import handle_message_parameters

from tests.servers.discord import DiscordServer
from tests.servers.discord.conftest import Bot, Http, ask, connected, refusal
from tests.servers.discord.model import MEMBERS


async def post(http: Http, server: DiscordServer, content: str = "x", **fields: Any) -> Any:
    return await ask(http, "POST", f"/channels/{server.general}/messages", content=content, **fields)


async def test_a_text_is_counted_in_code_points(server: DiscordServer, http: Http) -> None:
    assert (await post(http, server, "😀" * 2000))["content"] == "😀" * 2000
    assert await refusal(post(http, server, "😀" * 2001)) == (400, 50035)


async def test_white_space_around_a_text_and_override_characters_are_dropped(server: DiscordServer, http: Http) -> None:
    assert (await post(http, server, "\n a\u202eb\u2068c\u2069 \n"))["content"] == "ab\u2068c\u2069"


async def test_a_nonce_is_enforced_once_within_its_window(server: DiscordServer, http: Http) -> None:
    first = await post(http, server, "one", nonce="row-1", enforce_nonce=True)
    again = await post(http, server, "two", nonce="row-1", enforce_nonce=True)
    assert (again["id"], again["content"]) == (first["id"], "one")
    assert len(server.bot_messages(server.general)) == 1
    await post(http, server, "without", nonce="row-1")
    assert len(server.bot_messages(server.general)) == 2
    server.fast_forward(server.nonce_window + 1)
    assert (await post(http, server, "late", nonce="row-1", enforce_nonce=True))["content"] == "late"


async def test_the_nonce_of_a_deleted_message_makes_no_new_one(server: DiscordServer, http: Http) -> None:
    first = await post(http, server, nonce=7, enforce_nonce=True)
    await ask(http, "DELETE", f"/channels/{server.general}/messages/{first['id']}")
    assert await refusal(post(http, server, nonce=7, enforce_nonce=True)) == (404, 10008)
    assert server.bot_messages(server.general) == []


async def test_a_nonce_that_serves_two_channels_is_a_violation(server: DiscordServer, http: Http) -> None:
    other = server.add_channel("other")
    await post(http, server, nonce="n", enforce_nonce=True)
    await ask(http, "POST", f"/channels/{other}/messages", content="x", nonce="n", enforce_nonce=True)
    assert server.bot_messages(other) == []
    assert "used in two channels" in server.violations[0]


async def test_history_has_the_nonce_only_where_it_is_switched_on(server: DiscordServer, http: Http) -> None:
    posted = await post(http, server, nonce="n")
    assert posted["nonce"] == "n"
    path = f"/channels/{server.general}/messages"
    assert "nonce" not in (await ask(http, "GET", path))[0]
    server.nonce_in_history = True
    assert (await ask(http, "GET", path))[0]["nonce"] == "n"
    assert (await ask(http, "GET", f"{path}/{posted['id']}"))["nonce"] == "n"


async def test_history_comes_page_by_page_newest_first(server: DiscordServer, http: Http) -> None:
    ids = [await server.say(f"m{n}") for n in range(7)]

    async def page(**bounds: Any) -> list[str]:
        found = await http.logs_from(int(server.general), **bounds)
        return [message["content"] for message in found]

    assert await page(limit=3) == ["m6", "m5", "m4"]
    assert await page(limit=3, before=int(ids[4])) == ["m3", "m2", "m1"]
    assert await page(limit=2, after=int(ids[1])) == ["m3", "m2"]
    assert await page(limit=3, around=int(ids[3])) == ["m4", "m3", "m2"]
    server.deny(server.general, "READ_MESSAGE_HISTORY")
    assert await page(limit=3) == []


async def test_a_reply_refers_to_its_message_and_only_within_the_channel(server: DiscordServer, http: Http) -> None:
    asked = await server.say("question")
    reply = await post(http, server, "answer", message_reference={"message_id": asked})
    assert (reply["type"], reply["referenced_message"]["content"]) == (19, "question")
    await server.delete(asked)
    assert await refusal(post(http, server, message_reference={"message_id": asked})) == (400, 50035)
    lenient = {"message_id": asked, "fail_if_not_exists": False}
    assert (await post(http, server, message_reference=lenient))["type"] == 0
    elsewhere = {"message_id": reply["id"], "channel_id": server.add_channel("other")}
    assert await refusal(post(http, server, message_reference=elsewhere)) == (400, 50035)


async def test_an_edit_changes_what_it_names_only(server: DiscordServer, http: Http) -> None:
    rows = [{"type": 1, "components": [{"type": 2, "style": 1, "label": "x", "custom_id": "x"}]}]
    posted = await post(http, server, "one", components=rows)
    path = f"/channels/{server.general}/messages/{posted['id']}"
    edited = await ask(http, "PATCH", path, content="two")
    assert (edited["content"], edited["components"]) == ("two", rows)
    assert edited["edited_timestamp"] is not None
    edited = await ask(http, "PATCH", path, components=[], flags=4)
    assert (edited["content"], edited["components"], edited["flags"]) == ("two", [], 4)


async def test_flags_that_a_message_cannot_have_are_dropped_and_noted(server: DiscordServer, http: Http) -> None:
    assert (await post(http, server, flags=4 | 64 | 128))["flags"] == 4
    assert server.violations == ["a message was to be private, but channels know no private messages"]


async def test_files_are_kept_by_an_edit_that_names_them(server: DiscordServer, http: Http) -> None:
    files = [discord.File(io.BytesIO(b"abc"), f"{name}.csv", description="rows") for name in "ab"]
    with handle_message_parameters("text", files=files) as params:
        posted = await http.send_message(int(server.general), params=params)
    first, second = posted["attachments"]
    assert (first["filename"], first["size"], first["description"], first["content_type"]) == (
        "a.csv", 3, "rows", "text/csv",
    )  # fmt: skip
    path = f"/channels/{server.general}/messages/{posted['id']}"
    assert len((await ask(http, "PATCH", path, content="new"))["attachments"]) == 2
    edited = await ask(http, "PATCH", path, attachments=[{"id": second["id"]}])
    assert [each["id"] for each in edited["attachments"]] == [second["id"]]
    assert await refusal(ask(http, "PATCH", path, content="", attachments=[])) == (400, 50006)


async def test_the_address_of_a_file_is_signed_and_expires(server: DiscordServer, http: Http) -> None:
    mid = await server.say("look", files={"a.txt": b"hello"})
    path = f"/channels/{server.general}/messages/{mid}"
    url = (await ask(http, "GET", path))["attachments"][0]["url"]
    async with aiohttp.ClientSession() as session:

        async def status(address: str) -> int:
            async with session.get(address) as answer:
                return answer.status

        assert await http.get_from_cdn(url) == b"hello"
        assert await status(url.partition("?")[0]) == 404
        assert await status(url.replace("hm=", "hm=0")) == 404
        server.fast_forward(server.cdn_ttl + 1)
        assert await status(url) == 404
        fresh = (await ask(http, "GET", path))["attachments"][0]["url"]
        assert await status(fresh) == 200


async def test_without_the_intent_content_is_hidden_but_where_discord_shows_it() -> None:
    intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
    async with DiscordServer(privileged=MEMBERS) as server, connected(server, Bot(server, intents)) as bot:
        await server.say("not for us", files={"a.txt": b"x"})
        await server.mention("for us")
        ours = await server.say("ours", user=server.bot_id)
        await server.say("to us", reply_to=ours)
        await server.say("not to us", reply_to=ours, ping=False)
        await server.say("quietly", channel=server.dm_with())
        await server.wait_until(lambda: len(bot.heard) == 6)
        assert bot.texts() == ["", f"<@{server.bot_id}> for us", "ours", "to us", "", "quietly"]
        assert bot.heard[0].attachments == []
        application = await bot.application_info()
        assert not application.flags.gateway_message_content_limited
        history = [m.content async for m in bot.heard[0].channel.history(oldest_first=True)]
        assert history == ["", f"<@{server.bot_id}> for us", "ours", "to us", ""]


async def test_what_people_do_is_heard(server: DiscordServer) -> None:
    events: list[str] = []

    class Listening(Bot):
        async def on_raw_message_edit(self, event: discord.RawMessageUpdateEvent) -> None:
            events.append(f"edit {event.data['content']} {event.data['edited_timestamp'] is not None}")

        async def on_raw_message_delete(self, event: discord.RawMessageDeleteEvent) -> None:
            events.append(f"delete {event.message_id}")

        async def on_raw_reaction_add(self, event: discord.RawReactionActionEvent) -> None:
            events.append(f"add {event.emoji}")

        async def on_raw_reaction_remove(self, event: discord.RawReactionActionEvent) -> None:
            events.append(f"remove {event.emoji}")

    intents = discord.Intents(guilds=True, guild_messages=True, guild_reactions=True, message_content=True)
    async with connected(server, Listening(server, intents)) as bot:
        mid = await server.say("one")
        await server.unfurl(mid)
        await server.edit(mid, "two")
        await server.react(mid, "👍")
        await server.unreact(mid, "👍")
        await server.delete(mid)
        await server.wait_until(lambda: len(events) == 5)
        assert events == ["edit one False", "edit two True", "add 👍", "remove 👍", f"delete {mid}"]
        await server.say("hello", webhook_id="1")
        await server.wait_until(lambda: len(bot.heard) == 2)
        assert bot.heard[1].webhook_id == 1


async def test_a_reaction_is_set_once_and_taken_back(server: DiscordServer, http: Http) -> None:
    mid = await server.say("one")
    for _ in range(2):
        await http.add_reaction(int(server.general), int(mid), "👀")
    assert server.signs(mid) == {"👀"}
    seen = await ask(http, "GET", f"/channels/{server.general}/messages/{mid}")
    assert [(each["emoji"]["name"], each["count"], each["me"]) for each in seen["reactions"]] == [("👀", 1, True)]
    await http.remove_own_reaction(int(server.general), int(mid), "👀")
    assert server.signs(mid) == set()


async def test_joining_a_reaction_needs_no_permission_and_twenty_is_the_most(server: DiscordServer, http: Http) -> None:
    mid = await server.say("one")
    for n in range(20):
        await server.react(mid, chr(0x1F600 + n))
    assert await refusal(http.add_reaction(int(server.general), int(mid), "👀")) == (400, 30010)
    server.deny(server.general, "ADD_REACTIONS")
    await http.add_reaction(int(server.general), int(mid), chr(0x1F600))
    assert server.signs(mid) == {"😀"}


async def test_typing_shows_for_ten_seconds_or_until_the_answer(server: DiscordServer, http: Http) -> None:
    await http.send_typing(int(server.general))
    assert server.typing_in(server.general)
    server.fast_forward(10)
    assert not server.typing_in(server.general)
    await http.send_typing(int(server.general))
    server.fast_forward(1)
    await post(http, server)
    assert not server.typing_in(server.general)


@pytest.mark.parametrize("deleted", ["thread", "channel"])
async def test_what_is_deleted_is_unknown(server: DiscordServer, http: Http, deleted: str) -> None:
    thread = await server.open_thread("talk", message=await server.say("root"))
    await server.delete_channel(thread if deleted == "thread" else server.general)
    for call in (
        ask(http, "POST", f"/channels/{thread}/messages", content="x"),
        ask(http, "GET", f"/channels/{thread}"),
        http.send_typing(int(thread)),
    ):
        assert await refusal(call) == (404, 10003)
