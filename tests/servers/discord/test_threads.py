from __future__ import annotations

from typing import Any

import discord

from tests.servers.discord import DiscordServer, Json
from tests.servers.discord.conftest import Bot, Http, ask, connected, refusal
from tests.servers.discord.model import ANNOUNCEMENT, FORUM


async def start(http: Http, server: DiscordServer, mid: str, **fields: Any) -> Any:
    return await ask(http, "POST", f"/channels/{server.general}/messages/{mid}/threads", **({"name": "talk"} | fields))


async def test_a_thread_takes_the_id_of_its_message(server: DiscordServer, http: Http) -> None:
    mid = await server.say("root")
    thread = await start(http, server, mid, auto_archive_duration=60)
    assert (thread["id"], thread["parent_id"], thread["type"]) == (mid, server.general, 11)
    assert thread["thread_metadata"]["auto_archive_duration"] == 60
    root = await ask(http, "GET", f"/channels/{server.general}/messages/{mid}")
    assert root["flags"] & 32
    assert root["thread"]["id"] == mid
    assert await refusal(start(http, server, mid)) == (400, 160004)


async def test_the_first_message_of_a_thread_stays_in_the_parent(server: DiscordServer, http: Http) -> None:
    mid = await server.say("root")
    await start(http, server, mid)
    assert await refusal(ask(http, "PUT", f"/channels/{mid}/messages/{mid}/reactions/👀/@me")) == (404, 10008)
    (starter,) = await ask(http, "GET", f"/channels/{mid}/messages")
    assert (starter["type"], starter["content"]) == (21, "")
    assert starter["referenced_message"]["content"] == "root"
    assert starter["id"] != mid
    assert server.messages(mid) == []


async def test_a_forum_post_holds_its_first_message(server: DiscordServer, http: Http) -> None:
    forum = server.add_channel("forum", kind=FORUM)
    post = await server.open_post("why", "is it slow?", channel=forum)
    found = await ask(http, "GET", f"/channels/{post}/messages/{post}")
    assert found["content"] == "is it slow?"
    made = await ask(http, "POST", f"/channels/{forum}/threads", name="report", message={"content": "text"})
    assert made["message"]["id"] == made["id"]
    assert [m["content"] for m in server.messages(made["id"])] == ["text"]


async def test_a_forum_may_ask_for_a_tag(server: DiscordServer, http: Http) -> None:
    tags = [{"id": "5", "name": "slow", "moderated": False, "emoji_id": None, "emoji_name": None}]
    forum = server.add_channel("forum", kind=FORUM, available_tags=tags, flags=1 << 4)
    body: Json = {"name": "x", "message": {"content": "text"}}
    assert await refusal(ask(http, "POST", f"/channels/{forum}/threads", **body)) == (400, 40067)
    made = await ask(http, "POST", f"/channels/{forum}/threads", **body, applied_tags=["5"])
    assert made["applied_tags"] == ["5"]


async def test_an_announcement_has_threads_of_its_own_kind(server: DiscordServer, http: Http) -> None:
    news = server.add_channel("news", kind=ANNOUNCEMENT)
    mid = await server.say("root", channel=news)
    made = await ask(http, "POST", f"/channels/{news}/messages/{mid}/threads", name="x")
    assert made["type"] == 10


async def test_a_guild_takes_so_many_active_threads(server: DiscordServer, http: Http) -> None:
    server.guilds[server.guild_id].max_active_threads = 1
    first, second = await server.say("1"), await server.say("2")
    await start(http, server, first)
    assert await refusal(start(http, server, second)) == (400, 160006)
    await server.change_thread(first, archived=True)
    await start(http, server, second)


async def test_slow_mode_takes_the_right_to_manage_threads(server: DiscordServer, http: Http) -> None:
    server.allow(server.general, "MANAGE_THREADS")
    made = await start(http, server, await server.say("root"), rate_limit_per_user=0)
    assert made["rate_limit_per_user"] == 0
    assert await refusal(start(http, server, await server.say("x"), rate_limit_per_user=21_601)) == (400, 50035)
    server.deny(server.general, "MANAGE_THREADS")
    assert (await start(http, server, await server.say("root"), rate_limit_per_user=None))["rate_limit_per_user"] == 0


async def test_writing_opens_an_archived_thread_and_nothing_else_does(server: DiscordServer, http: Http) -> None:
    thread = await server.open_thread("talk", message=await server.say("root"))
    ours = (await ask(http, "POST", f"/channels/{thread}/messages", content="one"))["id"]
    await server.change_thread(thread, archived=True)
    assert await refusal(ask(http, "PATCH", f"/channels/{thread}/messages/{ours}", content="x")) == (400, 50083)
    await ask(http, "DELETE", f"/channels/{thread}/messages/{ours}")
    await ask(http, "POST", f"/channels/{thread}/messages", content="two")
    assert not server.channels[thread]["thread_metadata"]["archived"]


async def test_a_locked_thread_is_for_moderators(server: DiscordServer, http: Http) -> None:
    thread = await server.open_thread("talk")
    ours = (await ask(http, "POST", f"/channels/{thread}/messages", content="one"))["id"]
    await server.change_thread(thread, locked=True)
    assert await refusal(ask(http, "POST", f"/channels/{thread}/messages", content="x")) == (400, 160005)
    assert await refusal(ask(http, "PATCH", f"/channels/{thread}/messages/{ours}", content="x")) == (400, 160005)
    await server.change_thread(thread, archived=True)
    assert await refusal(ask(http, "DELETE", f"/channels/{thread}/messages/{ours}")) == (400, 50083)
    server.allow(server.general, "MANAGE_THREADS")
    await ask(http, "POST", f"/channels/{thread}/messages", content="two")
    assert [m["content"] for m in server.messages(thread)] == ["one", "two"]


async def test_writing_in_a_thread_takes_its_own_permission(server: DiscordServer, http: Http) -> None:
    thread = await server.open_thread("talk")
    server.deny(server.general, "SEND_MESSAGES")
    await ask(http, "POST", f"/channels/{thread}/messages", content="x")
    server.deny(server.general, "SEND_MESSAGES_IN_THREADS")
    assert await refusal(ask(http, "POST", f"/channels/{thread}/messages", content="x")) == (403, 50013)


async def test_a_private_thread_is_seen_by_its_members_only(server: DiscordServer) -> None:
    async with connected(server, Bot(server)) as bot:
        thread = await server.open_thread("secret", private=True)
        await server.say("before", channel=thread)
        await server.say("open")
        await server.add_to_thread(thread)
        await server.say("after", channel=thread)
        await server.wait_until(lambda: len(bot.heard) == 2)
        assert bot.texts() == ["open", "after"]
        assert isinstance(bot.heard[1].channel, discord.Thread)


async def test_threads_are_listed_and_changed_by_their_owner(server: DiscordServer, http: Http) -> None:
    theirs = await server.open_thread("theirs")
    ours = (await ask(http, "POST", f"/channels/{server.general}/threads", name="ours", type=11))["id"]
    active = await ask(http, "GET", f"/guilds/{server.guild_id}/threads/active")
    assert [t["id"] for t in active["threads"]] == [theirs, ours]
    assert [m["id"] for m in active["members"]] == [ours]
    assert await refusal(ask(http, "PATCH", f"/channels/{theirs}", name="new")) == (403, 50013)
    assert (await ask(http, "PATCH", f"/channels/{ours}", name="new", archived=True))["name"] == "new"
    assert await refusal(ask(http, "PATCH", f"/channels/{ours}", name="newer")) == (400, 50083)
    archived = await ask(http, "GET", f"/channels/{server.general}/threads/archived/public")
    assert [t["id"] for t in archived["threads"]] == [ours]
    await ask(http, "PATCH", f"/channels/{ours}", archived=False)
    await ask(http, "PUT", f"/channels/{theirs}/thread-members/@me")
    assert (await ask(http, "GET", f"/channels/{theirs}"))["member"]["user_id"] == server.bot_id
    await ask(http, "DELETE", f"/channels/{theirs}/thread-members/@me")
    assert "member" not in await ask(http, "GET", f"/channels/{theirs}")


async def test_discord_py_follows_threads(server: DiscordServer) -> None:
    gone: list[int] = []

    class Listening(Bot):
        async def on_raw_thread_delete(self, event: discord.RawThreadDeleteEvent) -> None:
            gone.append(event.thread_id)

    async with connected(server, Listening(server)) as bot:
        mid = await server.mention("hello")
        await server.wait_until(lambda: bot.heard)
        thread = await bot.heard[0].create_thread(name="talk")
        await thread.send("answer")
        assert [m["content"] for m in server.bot_messages(mid)] == ["answer"]
        permissions = thread.permissions_for(thread.guild.me)
        assert permissions.send_messages_in_threads
        server.deny(server.general, "SEND_MESSAGES_IN_THREADS")
        await server.wait_until(lambda: not thread.permissions_for(thread.guild.me).send_messages_in_threads)
        await server.delete_channel(mid)
        await server.wait_until(lambda: gone == [int(mid)])
