"""A second, independent opinion on the Discord side: simcord, which others wrote from Discord's documents.

simcord keeps a guild in memory, in this process, without any network. Its gateway feeds discord.py's own parsers, its
people can only do what Discord's client would let them, and its REST routes refuse what they do not know. Here it
stands below everything of ``adapters.discord`` but two things:

- the connection (``gateway``, ``connection``, ``login``): simcord opens no websocket, it brings events to the client
  directly. So nothing here says anything of reconnects, resuming, heartbeats, close codes or the identify budget;
- ``DiscordHttp.attempt``: its one request is made through the ``request`` of simcord's client, which knows no headers,
  no rates and no broken connections. So nothing here says anything of limits, retries and posts in doubt.

Covered are what is heard and how it is understood, threads made from messages, posts and whom they ping, drafts,
buttons, commands with options, suggestions, private answers, missing permissions, deleted places, history, signs, and
files out. simcord 3.2.1 does not cover nonces (ignored, so "the same key is posted once" cannot be tried), a second
thread on one message (it makes one in its place, where Discord refuses with 160004), ``GET /applications/@me`` and
``GET /gateway/bot`` (not served), and addresses of files that end.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import discord
import pytest
import simcord
import yarl
from discord.http import HTTPClient, Route

from adapters.chat import Attachment, Button, Delivered, Rejected, Reply, ThreadRef
from adapters.discord.client import DiscordClient
from adapters.discord.commands import sync_commands
from adapters.discord.connection import build_intents
from adapters.discord.directory import DiscordDirectory
from adapters.discord.http import Answer, Upload
from adapters.discord.intake import DiscordIntake
from adapters.discord.interactions import DiscordInteractions
from adapters.discord.outbound import DiscordOutbound
from adapters.discord.parse import Identity
from adapters.discord.session import GatewayHttp, ShardedClient
from adapters.discord.threads import DiscordThreads
from tests.contract.chat.place import until
from tests.contract.chat.test_commands import ASK, SLOWQ, USAGE, suggest
from tests.contract.chat.test_content import EVERYBODY
from tests.integration.slack.conftest import Inbox
from tests.unit.adapters.markdown_texts import CONSTRUCTS


class SimcordHttp(GatewayHttp):
    """Makes each request of ours through simcord."""

    def __init__(self) -> None:
        super().__init__(api_url="https://discord.test/api/v10", token="a.b.c")
        self.simcord: HTTPClient | None = None

    async def attempt(
        self, route: Route, *, body: object = None, files: Sequence[Upload] = (), timeout_s: float = 20.0
    ) -> Answer:
        assert self.simcord is not None
        query = dict(yarl.URL(self.build_url(route)).query)
        uploads = [discord.File(io.BytesIO(file.content), file.name) for file in files]
        try:
            data: object = await self.simcord.request(route, json=body, params=query, files=uploads)
        except discord.HTTPException as refused:
            told = {"code": refused.code, "message": refused.text}
            return Answer(status=refused.status, data=told, headers={})
        return Answer(status=204 if data is None else 200, data=data, headers={})


class Guild:
    """A guild of simcord's with a person in it, and our side of it."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.http = SimcordHttp()
        self.client = DiscordClient(self.http)
        self.threads = DiscordThreads(self.client)
        self.directory = DiscordDirectory(self.client.calls, monotonic=self.client.monotonic)
        self.interactions = DiscordInteractions(self.client, now=self._now)
        self.outbound = DiscordOutbound(
            self.client, self.threads, answers=self.interactions, names=self.directory, now=self._now
        )
        self.intake = DiscordIntake(
            directory=self.directory,
            threads=self.threads,
            fetch_page=self._fetch_page,
            on_interaction=self.interactions.receive,
            on_unreadable=self._tell,
            retry_s=0.05,
            now=self._now,
            sleep=_never,
        )
        self.bot = ShardedClient(
            self.http,
            intents=build_intents(Identity(user="1", application="1", reads_all=True)),
            shard_count=1,
            heartbeat_timeout_s=60.0,
            on_event=self.intake.take,
            on_interaction=self.intake.take_interaction,
            on_shard=lambda shard, new: None,
        )

    def _now(self) -> datetime:
        """Simcord has a clock of its own, by which its ids are made."""
        return self.env.now()

    async def _fetch_page(self, channel: str, before: str) -> None:
        raise AssertionError("no session was lost")

    async def _tell(self, thread: ThreadRef) -> None:
        raise AssertionError("everything can be read")

    def open(self, env: simcord.Env) -> None:
        self.env = env
        self.guild = env.create_guild()
        self.channel = self.guild.create_text_channel("ops")
        self.alice = self.guild.add_member(env.create_user("alice"))
        self.bob = self.guild.add_member(env.create_user("bob"))
        self.http.simcord = self.bot.http
        assert self.bot.user is not None
        self.me = str(self.bot.user.id)
        self.directory.attach(self.bot)
        self.intake.open(self.inbox.accept, Identity(user=self.me, application=str(self.bot.application_id)))

    def go_where_forbidden(self, *permissions: str) -> None:
        """Go on in a channel where we lack these permissions."""
        assert self.bot.user is not None
        denied = discord.PermissionOverwrite(**dict.fromkeys(permissions, False))
        self.channel = self.guild.create_text_channel("quiet", overwrites={self.bot.user: denied})

    async def ask(self, text: str = "which queries are slow?") -> ThreadRef:
        said = await self.alice.send(self.channel, f"<@{self.me}> {text}")
        return next(m.thread for m in self.inbox.messages if m.id == str(said.id))

    def place(self, thread: ThreadRef) -> simcord.ChannelHandle:
        """The thread, once it is open."""
        return next(handle for handle in self.channel.threads if str(handle.id) == thread.thread)

    def written(self, thread: ThreadRef) -> list[discord.Message]:
        """What we wrote in a thread."""
        return [m for m in self.place(thread).history() if str(m.author.id) == self.me and m.type in SAID]

    def pinged(self, thread: ThreadRef) -> set[object]:
        """Whom the messages of a thread would have notified, by simcord's own account."""
        stored = self.env.backend.messages[int(thread.thread)].values()
        told = {who for m in stored for who in (*m.ping_user_ids, *m.ping_role_ids)}
        return told | ({"everyone"} if any(m.mention_everyone for m in stored) else set())

    async def close(self) -> None:
        self.intake.close()
        await self.intake.drain(5.0)
        await self.outbound.close()
        await self.http.close()


SAID = (discord.MessageType.default, discord.MessageType.reply)


async def _never(seconds: float) -> None:
    raise AssertionError("nothing has to be tried again")


@pytest.fixture
async def guild() -> AsyncIterator[Guild]:
    guild = Guild()
    env = simcord.Env(guild.bot)
    await env.start()
    try:
        guild.open(env)
        yield guild
        env.raise_errors()
    finally:
        await guild.close()
        await env.shutdown()


def reply(thread: ThreadRef, text: str = "Two.", key: str = "run/1", **fields: Any) -> Reply:
    return Reply(thread=thread, text=text, key=key, **fields)


# -- hearing


async def test_a_mention_a_follow_up_and_a_reply_are_heard(guild: Guild) -> None:
    thread = await guild.ask("which queries are slow?")
    assert isinstance(await guild.outbound.post(reply(thread)), Delivered)
    follow_up = await guild.alice.send(guild.place(thread), "and yesterday?")
    answer = await guild.bob.send(guild.place(thread), "which two?", reply_to=guild.written(thread)[0])
    heard = [(m.id, m.text, m.thread) for m in guild.inbox.messages]
    assert heard[1:] == [(str(follow_up.id), "and yesterday?", thread), (str(answer.id), "which two?", thread)]
    assert guild.inbox.messages[0].text == "which queries are slow?"


async def test_what_is_not_for_us_is_not_heard(guild: Guild) -> None:
    await guild.alice.send(guild.channel, "lunch?")
    await guild.alice.send(guild.channel, "@everyone lunch?")
    await guild.outbound.post(reply(await guild.ask()))
    assert [m.text for m in guild.inbox.messages] == ["which queries are slow?"]


async def test_an_edit_that_adds_the_mention_and_a_deletion_are_heard(guild: Guild) -> None:
    said = await guild.alice.send(guild.channel, "which queries are slow?")
    await guild.alice.edit(said, f"<@{guild.me}> which queries are slow?")
    assert [(m.id, m.mentioned) for m in guild.inbox.messages] == [(str(said.id), True)]
    await guild.alice.delete(said)
    assert [d.message_id for d in guild.inbox.deletions] == [str(said.id)]


async def test_a_direct_message_is_heard_and_answered(guild: Guild) -> None:
    await guild.alice.send_dm("hello")
    (message,) = guild.inbox.messages
    assert message.direct
    assert isinstance(await guild.outbound.post(reply(message.thread, "hi")), Delivered)
    assert [m.content for m in guild.alice.user.dm_channel.history()] == ["hello", "hi"]


# -- answering


async def test_an_answer_opens_the_thread_of_its_question_with_its_name(guild: Guild) -> None:
    thread = await guild.ask("which queries are slow?")
    posted = await guild.outbound.post(reply(thread, "**Two** on `orders`."))
    assert isinstance(posted, Delivered)
    assert [(h.name, str(h.id)) for h in guild.channel.threads] == [("which queries are slow?", thread.thread)]
    (message,) = guild.written(thread)
    assert (str(message.id), message.content) == (posted.remote_id, "**Two** on `orders`.")
    assert message.flags.suppress_embeds
    assert len(guild.written(thread)) == len(guild.channel.threads) == 1


async def test_a_thread_that_was_opened_before_a_restart_is_used(guild: Guild) -> None:
    thread = await guild.ask()
    await guild.outbound.post(reply(thread, "one", "run/1"))
    restarted = DiscordOutbound(guild.client, DiscordThreads(guild.client))
    assert isinstance(await restarted.post(reply(thread, "two", "run/2")), Delivered)
    assert [m.content for m in guild.written(thread)] == ["one", "two"]
    assert len(guild.channel.threads) == 1


async def test_without_the_permission_to_open_threads_the_answer_is_a_reply(guild: Guild) -> None:
    guild.go_where_forbidden("create_public_threads")
    thread = await guild.ask()
    posted = await guild.outbound.post(reply(thread))
    assert isinstance(posted, Delivered)
    last = guild.channel.last_message
    assert last is not None
    assert last.reference is not None
    assert str(last.reference.message_id) == thread.thread
    assert last.content.startswith("Two.")
    assert last.mentions == []


async def test_without_the_permission_to_post_it_is_refused_with_the_remedy(guild: Guild) -> None:
    guild.go_where_forbidden("send_messages", "send_messages_in_threads")
    thread = await guild.ask()
    outcome = await guild.outbound.post(reply(thread))
    assert isinstance(outcome, Rejected)
    assert "permission" in outcome.reason.lower()


async def test_a_place_that_is_gone_is_told(guild: Guild) -> None:
    thread = await guild.ask()
    await guild.outbound.post(reply(thread))
    await guild.client.calls.call(Route("DELETE", "/channels/{channel_id}", channel_id=thread.thread), "", "")
    outcome = await guild.outbound.post(reply(thread, key="run/2"))
    assert isinstance(outcome, Rejected)
    assert outcome.gone


@pytest.mark.parametrize("construct", range(0, len(CONSTRUCTS), 3))
async def test_nobody_is_pinged_by_what_an_answer_says(guild: Guild, construct: int) -> None:
    thread = await guild.ask()
    said = f"{EVERYBODY} <@{guild.alice.id}> <@&{guild.guild.default_role.id}>"
    assert isinstance(await guild.outbound.post(reply(thread, CONSTRUCTS[construct].replace("{}", said))), Delivered)
    assert guild.written(thread)
    assert guild.pinged(thread) == set()


async def test_whom_an_answer_names_on_purpose_is_pinged_and_simcord_would_have_told_of_others(guild: Guild) -> None:
    thread = await guild.ask()
    text = f"<@{guild.alice.id}> <@{guild.bob.id}> @everyone"
    await guild.outbound.post(reply(thread, text, mentions=frozenset({str(guild.alice.id)})))
    assert guild.pinged(thread) == {guild.alice.id}
    assert guild.http.simcord is not None
    careless = Route("POST", "/channels/{channel_id}/messages", channel_id=thread.thread)
    await guild.http.simcord.request(careless, json={"content": text})
    assert guild.pinged(thread) == {guild.alice.id, guild.bob.id, "everyone"}


async def test_files_go_out_byte_by_byte(guild: Guild) -> None:
    thread = await guild.ask()
    files = (Attachment(name="rows.csv", content="a,b\n"), Attachment(name="x.bin", content="AAEC", encoding="base64"))
    await guild.outbound.post(reply(thread, "See files.", files=files))
    (message,) = guild.written(thread)
    assert [(a.filename, await a.read()) for a in message.attachments] == [
        ("rows.csv", b"a,b\n"),
        ("x.bin", b"\x00\x01\x02"),
    ]


async def test_an_answer_grows_and_stands_there_alone_at_the_end(guild: Guild) -> None:
    thread = await guild.ask()
    draft = guild.outbound.open_draft(thread, asker=guild.inbox.messages[0].author)
    assert draft is not None
    await draft.show("The one on ")
    await until(lambda: draft.remote_id)
    assert [m.content for m in guild.written(thread)] == ["The one on"]
    assert isinstance(await draft.finish(reply(thread, "The one on `orders`.")), Delivered)
    assert [m.content for m in guild.written(thread)] == ["The one on `orders`."]


async def test_what_was_said_is_read_oldest_first(guild: Guild) -> None:
    thread = await guild.ask("one?")
    await guild.outbound.post(reply(thread, "two"))
    await guild.bob.send(guild.place(thread), "three")
    said = await guild.outbound.fetch_history(thread, limit=10)
    assert [(s.text, s.own) for s in said] == [("one?", False), ("two", True), ("three", False)]


async def test_signs_are_put_on_a_question_and_taken_off(guild: Guild) -> None:
    thread = await guild.ask()
    await guild.outbound.react(thread, thread.thread, "seen")
    assert [str(r.emoji) for m in guild.channel.history() for r in m.reactions] == ["\U0001f440"]
    await guild.outbound.react(thread, thread.thread, "-seen")
    assert [r for m in guild.channel.history() for r in m.reactions if r.count] == []


# -- buttons and commands


async def test_a_pressed_button_and_thumb_come_back(guild: Guild) -> None:
    thread = await guild.ask()
    buttons = (Button(name="approve", label="Approve", value="a1"),)
    await guild.outbound.post(reply(thread, "May I?", buttons=buttons, feedback="run-1"))
    (message,) = guild.written(thread)
    pressed = await guild.bob.click(message, label="Approve")
    assert pressed.acknowledged
    await guild.alice.click(message, custom_id="feedback:run-1/up")
    assert [(a.name, a.value, a.thread, a.author.id) for a in guild.inbox.actions] == [
        ("approve", "a1", thread, str(guild.bob.id)),
        ("feedback", "run-1/up", thread, str(guild.alice.id)),
    ]


async def offer(guild: Guild) -> None:
    guild.interactions.offer((ASK, SLOWQ, USAGE), suggest)
    assert await sync_commands(guild.client.calls, (ASK, SLOWQ, USAGE), application_id=str(guild.bot.application_id))


async def test_commands_are_offered_given_and_answered(guild: Guild) -> None:
    await offer(guild)
    given = await guild.alice.slash(guild.channel, "slowq", limit=5, target="shop", system=True)
    assert given.deferred
    (command,) = guild.inbox.commands
    assert (command.name, command.text) == ("slowq", 'limit=5 target="shop" system=true')
    answer = reply(command.thread, "Two.", f"{command.id}/1", respond_to=command.respond_to)
    assert isinstance(await guild.outbound.post(answer), Delivered)
    assert given.response is not None
    assert (given.response.content, given.ephemeral) == ("Two.", False)
    assert [m.content for m in guild.channel.history()] == ["Two."]


async def test_a_private_command_is_answered_to_its_giver_alone(guild: Guild) -> None:
    await offer(guild)
    given = await guild.alice.slash(guild.channel, "usage")
    (command,) = guild.inbox.commands
    answer = reply(
        command.thread, "3 $", f"{command.id}/1", respond_to=command.respond_to, private_to=command.author.id
    )
    assert isinstance(await guild.outbound.post(answer), Delivered)
    assert given.ephemeral
    assert [m.content for m in guild.channel.history(viewer=guild.alice)] == ["3 $"]
    assert guild.channel.history(viewer=guild.bob) == []


async def test_values_are_suggested_and_wrong_ones_cannot_be_entered(guild: Guild) -> None:
    await offer(guild)
    found = await guild.alice.autocomplete(guild.channel, "slowq", "target", "sh")
    assert [choice["value"] for choice in found] == ["shop", "shelf"]
    with pytest.raises(simcord.OptionError):
        await guild.alice.slash(guild.channel, "slowq", limit=0)
    assert guild.inbox.commands == []
