"""What people do on Discord, as it reaches Hermod: through the real client, from a local Discord."""

from __future__ import annotations

from adapters.chat import Delivered, Reply
from adapters.discord.app import DiscordAdapter
from tests.integration.discord.conftest import Inbox
from tests.servers.discord import DiscordServer


async def test_a_mention_becomes_a_message_and_its_answer_opens_a_thread(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    message_id = await server.mention("which queries are slow?")
    await inbox.wait_for(lambda: inbox.messages)
    (message,) = inbox.messages
    assert message.thread.key == f"discord:{server.guild_id}/{server.general}/{message_id}"
    assert (message.author.name, message.text, message.mentioned) == ("Alice", "which queries are slow?", True)
    assert not server.threads()

    outcome = await adapter.post(Reply(thread=message.thread, text="The one on `orders`.", key="run/1"))
    assert isinstance(outcome, Delivered)
    (thread,) = server.threads()
    assert (thread["id"], thread["name"]) == (message_id, "which queries are slow?")
    assert [m["content"] for m in server.bot_messages(message_id)] == ["The one on `orders`."]
    assert server.violations == []
