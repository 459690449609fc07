"""The adapter as a whole: each method of the contract reaches Discord."""

from __future__ import annotations

import asyncio

from adapters.chat import ChatAdapter, Command, Delivered, PlanStep, Reply, ThreadRef
from adapters.commands import CommandOffer, CommandOption, Completing, HasCommands
from adapters.discord.app import DiscordAdapter
from tests.integration.discord.conftest import Inbox, build_adapter, running, wait_connected
from tests.servers.discord import DiscordServer


async def ask(server: DiscordServer, inbox: Inbox, text: str = "which queries are slow?") -> ThreadRef:
    message_id = await server.mention(text)
    await inbox.wait_for(lambda: any(m.id == message_id for m in inbox.messages))
    return next(m.thread for m in inbox.messages if m.id == message_id)


def shown(server: DiscordServer, thread: ThreadRef) -> list[str]:
    """What of ours stands in a thread, if there is one."""
    return [m["content"] for m in server.bot_messages(thread.thread)] if thread.thread in server.channels else []


def test_it_is_what_the_product_expects(server: DiscordServer) -> None:
    adapter: ChatAdapter = build_adapter(server)
    assert isinstance(adapter, HasCommands)
    assert adapter.platform == "discord"


async def test_an_answer_is_seen_while_it_is_written_and_stands_once(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await ask(server, inbox)
    await adapter.set_status(thread, "looking at shop")
    draft = adapter.open_draft(thread, asker=inbox.messages[0].author)
    assert draft is not None
    await draft.show("The one on ", [PlanStep(id="1", title="get_slow_queries", state="done")])
    await server.wait_until(lambda: any("The one on" in text for text in shown(server, thread)))
    outcome = await draft.finish(Reply(thread=thread, text="The one on `orders`.", key="run/1"))
    assert isinstance(outcome, Delivered)
    assert shown(server, thread) == ["The one on `orders`."]
    assert server.typing == [thread.thread]
    assert server.violations == []


async def test_what_was_left_of_an_answer_is_removed(
    server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox
) -> None:
    thread = await ask(server, inbox)
    draft = adapter.open_draft(thread, asker=None)
    assert draft is not None
    await draft.show("The one")
    await server.wait_until(lambda: shown(server, thread))
    remote_id = server.bot_messages(thread.thread)[0]["id"]
    await draft.abandon()
    await adapter.discard_draft(thread, remote_id)
    assert shown(server, thread) == []


async def test_a_post_that_is_under_way_at_the_stop_is_not_cut_off(server: DiscordServer, inbox: Inbox) -> None:
    """Else it would be in doubt: looked for, and a private one told to be perhaps missing."""
    async with running(server, inbox) as adapter:
        thread = await ask(server, inbox)
        await adapter.set_status(thread, "opens the thread")
        server.inject(f"POST /channels/{thread.thread}/messages", delay=0.3, only_delay=True)
        posting = asyncio.create_task(adapter.post(Reply(thread=thread, text="Two.", key="run/1")))
        await server.wait_until(lambda: server.calls_to(f"POST /channels/{thread.thread}/messages"))
        await adapter.stop()
        assert isinstance(await posting, Delivered)
    assert shown(server, thread) == ["Two."]


async def test_a_stop_leaves_no_draft_that_is_written_on(server: DiscordServer, inbox: Inbox) -> None:
    before = asyncio.all_tasks()
    async with running(server, inbox) as adapter:
        thread = await ask(server, inbox)
        draft = adapter.open_draft(thread, asker=None)
        assert draft is not None
        await draft.show("The one")
        await server.wait_until(lambda: shown(server, thread))
    left = {task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith("discord")}
    assert left == set()
    await draft.show("The one on")
    outcome = await draft.finish(Reply(thread=thread, text="The one on `orders`.", key="run/1"))
    assert isinstance(outcome, Delivered)
    assert shown(server, thread) == ["The one on `orders`."]
    await adapter.stop()


async def test_signs_and_history(server: DiscordServer, adapter: DiscordAdapter, inbox: Inbox) -> None:
    thread = await ask(server, inbox)
    await adapter.react(thread, thread.thread, "queued")
    assert server.signs(thread.thread) == {"\u23f3"}
    await adapter.react(thread, thread.thread, "-queued")
    assert server.signs(thread.thread) == set()
    await adapter.post(Reply(thread=thread, text="Two.", key="run/1"))
    await server.say("which?", channel=thread.thread, user=server.bob)
    said = await adapter.fetch_history(thread, limit=10)
    assert [(s.author.name, s.text, s.own) for s in said] == [
        ("Alice", "which queries are slow?", False),
        ("hermod", "Two.", True),
        ("Bob", "which?", False),
    ]


async def test_b065_a_command_comes_over_the_gateway_and_its_answer_takes_the_place_of_the_wait(
    server: DiscordServer, inbox: Inbox
) -> None:
    limit = CommandOption(name="limit", summary="How many.", kind="integer")
    target = CommandOption(name="target", summary="Which database.", completes="target")
    offer = CommandOffer(name="slowq", summary="Shows slow queries.", options=(target, limit))

    def complete(asked: Completing) -> list[str]:
        return [name for name in ("shop", "crm") if name.startswith(asked.typed)]

    adapter = build_adapter(server)
    adapter.offer_commands([offer], complete)
    try:
        await adapter.start(inbox.accept)
        await wait_connected(adapter)
        await server.wait_until(lambda: server.command_puts)
        assert [c["value"] for c in await server.autocomplete("slowq", "target", "s")] == ["shop"]
        interaction = await server.slash("slowq", {"target": "shop", "limit": 5})
        await inbox.wait_for(lambda: inbox.commands)
        (command,) = inbox.commands
        assert isinstance(command, Command)
        assert (command.name, command.text) == ("slowq", 'target="shop" limit=5')
        reply = Reply(thread=command.thread, text="Two.", key="run/1", respond_to=command.respond_to)
        assert isinstance(await adapter.post(reply), Delivered)
        assert [m["content"] for m in server.shown(interaction)] == ["Two."]
    finally:
        await adapter.stop()
    assert server.violations == []


async def test_a_check_of_a_sound_application_finds_nothing_and_costs_no_start(server: DiscordServer) -> None:
    adapter = build_adapter(server)
    assert await adapter.check() == ()
    assert server.identifies == []
    await adapter.stop()
