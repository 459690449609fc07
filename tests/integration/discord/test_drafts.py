"""Answers that grow in a thread, over the real client: what people see, and what is left when the process dies."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from adapters.chat import Author, Delivered, Delivery, Draft, PlanStep, ThreadRef
from adapters.discord.buttons import has_stop
from tests.integration.discord.outbound_desk import ALICE, Desk, direct, open_desk, place, reply
from tests.servers.discord import DiscordServer


async def hurried(seconds: float) -> None:
    """Let a draft's pauses be a tenth."""
    await asyncio.sleep(seconds / 10)


def begin(desk: Desk, thread: ThreadRef) -> Draft:
    draft = desk.outbound.open_draft(thread, asker=ALICE)
    assert draft is not None
    return draft


async def seen(server: DiscordServer, channel: str, text: str) -> dict[str, Any]:
    """The bot's message in which ``text`` is seen."""

    def find() -> dict[str, Any] | None:
        return next((m for m in server.bot_messages(channel) if text in m["content"]), None)

    found: dict[str, Any] = await server.wait_until(find, timeout=20)
    return found


async def test_an_answer_grows_in_the_thread_of_its_question_and_is_posted_whole(server: DiscordServer) -> None:
    root = await server.mention("why is it slow?")
    thread = place(server, root)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        step = PlanStep(id="1", title="get_slow_queries: shop @everyone", state="running")
        await draft.show("", [step])
        first = await seen(server, root, "get_slow_queries")
        assert first["content"] == "-# … get_slow_queries: shop @\u200beveryone"
        assert has_stop(first)
        await draft.show("It is the **missing index**, <@1> ", [step])
        second = await seen(server, root, "It is the **missing index**, \\<\u200b@1>")
        assert second["id"] == first["id"] == draft.remote_id
        done = await draft.finish(reply(thread, "It is the **missing index**.", feedback="run-1"))
        assert isinstance(done, Delivered)
    (message,) = server.bot_messages(root)
    assert message["id"] == done.remote_id
    assert message["content"] == "It is the **missing index**."
    assert not has_stop(message)
    assert [b["custom_id"] for b in message["components"][0]["components"]] == [
        "feedback:run-1/up",
        "feedback:run-1/down",
    ]
    assert [t["id"] for t in server.threads()] == [root]
    assert server.pings == []
    assert server.violations == []


async def test_b017_the_answer_is_a_new_message_that_pings_whom_it_names(server: DiscordServer) -> None:
    root = await server.mention("who is on call?")
    thread = place(server, root)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        await draft.show(f"It is <@{server.bob}> now. ")
        await seen(server, root, "It is")
        assert server.pings == []
        await draft.finish(reply(thread, f"It is <@{server.bob}>.", mentions=frozenset({server.bob})))
    assert [ping.via for ping in server.pings] == ["create"]
    assert server.pinged() == {server.bob}


async def test_b017_a_bot_that_asks_sees_no_unfinished_answer(server: DiscordServer) -> None:
    async with open_desk(server) as desk:
        thread = place(server, await server.mention("x"))
        assert desk.outbound.open_draft(thread, asker=Author(id="9", name="peer", bot=True)) is None
        assert desk.outbound.open_draft(place(server, "command-1"), asker=ALICE) is None


async def test_a_draft_in_a_direct_message(server: DiscordServer) -> None:
    thread = direct(server)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        await draft.show("Well, ")
        await seen(server, thread.channel, "Well,")
        await draft.finish(reply(thread, "Well, yes."))
    assert [m["content"] for m in server.bot_messages(thread.channel)] == ["Well, yes."]


async def test_an_abandoned_draft_is_gone(server: DiscordServer) -> None:
    root = await server.mention("x")
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, place(server, root))
        await draft.show("Well, ")
        await seen(server, root, "Well,")
        await draft.abandon()
    assert server.bot_messages(root) == []


async def test_a_longer_answer_leaves_nothing_of_the_draft_and_is_posted_by_others(server: DiscordServer) -> None:
    root = await server.mention("x")
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, place(server, root))
        text = "".join(f"Line {n} of it.\n" for n in range(300))
        await draft.show(text)
        shown = await seen(server, root, "Line 299 of it.")
        assert len(shown["content"]) <= 2000
        assert await draft.finish(reply(place(server, root), text)) is None
    assert server.bot_messages(root) == []


# -- a process that dies


async def test_a_draft_that_was_left_is_removed_by_its_id_or_by_its_stop_button(server: DiscordServer) -> None:
    for known in (True, False):
        root = await server.mention("x")
        thread = place(server, root)
        async with open_desk(server, sleep=hurried) as desk:
            draft = begin(desk, thread)
            await draft.show("Half of ")
            left = await seen(server, root, "Half of")
            await desk.outbound.post(reply(thread, "Something else.", key=f"other-{root}/1", feedback="other"))
        async with open_desk(server) as other:
            assert await other.outbound.find_posted(thread, "run-1/1") is None
            await other.outbound.discard_draft(thread, left["id"] if known else "")
        assert [m["content"] for m in server.bot_messages(root)] == ["Something else."]


@pytest.mark.parametrize("feedback", ["run-1", ""])
async def test_killed_between_the_post_and_the_removal_the_answer_stands_once_and_the_draft_goes(
    server: DiscordServer, feedback: str
) -> None:
    root = await server.mention("x")
    thread = place(server, root)
    server.inject(r"^DELETE /channels/\d+/messages/", delay=60, times=1)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        await draft.show("Half of ")
        left = await seen(server, root, "Half of")
        ending = asyncio.create_task(draft.finish(reply(thread, feedback=feedback)))
        posted = await seen(server, root, "The answer.")
        await server.wait_until(lambda: server.calls_to("^DELETE"), timeout=20)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
    assert len(server.bot_messages(root)) == 2
    async with open_desk(server) as other:
        found: Delivery | None = await other.outbound.find_posted(thread, "run-1/1")
        assert found == (Delivered(remote_id=posted["id"]) if feedback else None)
        await other.outbound.discard_draft(thread, left["id"])
        if found is None:  # Discord does not tell, but it makes no second one
            found = await other.outbound.post(reply(thread))
        assert found == Delivered(remote_id=posted["id"])
    assert [m["content"] for m in server.bot_messages(root)] == ["The answer."]


async def test_where_no_thread_can_be_opened_only_the_draft_of_the_same_question_is_removed(
    server: DiscordServer,
) -> None:
    server.deny(server.general, "CREATE_PUBLIC_THREADS")
    roots = [await server.mention("one"), await server.mention("two")]
    async with open_desk(server, sleep=hurried) as desk:
        for n, root in enumerate(roots):
            await begin(desk, place(server, root)).show(f"Draft {n} is ")
            await seen(server, server.general, f"Draft {n} is")
        await desk.outbound.discard_draft(place(server, roots[0]), "")
        assert [m["content"] for m in server.bot_messages(server.general)] == ["Draft 1 is"]


# -- a Discord that refuses


async def test_b058_the_answer_does_not_wait_behind_the_progress(server: DiscordServer) -> None:
    server.set_knobs(strict_rate_limits=True)
    root = await server.mention("x")
    thread = place(server, root)
    async with open_desk(server, sleep=hurried) as desk:  # ten times as eager as it is
        draft = begin(desk, thread)
        for n in range(60):
            await draft.show(f"{'word ' * n}and {n} ")
            await asyncio.sleep(0.05)
        begun = time.monotonic()
        assert isinstance(await draft.finish(reply(thread)), Delivered)
        assert time.monotonic() - begun < 10  # 0.05 s where it was measured
    assert [m["content"] for m in server.bot_messages(root)] == ["The answer."]
    assert server.rate_violations == []


async def test_refused_edits_are_made_later_and_the_answer_arrives(server: DiscordServer) -> None:
    root = await server.mention("x")
    thread = place(server, root)
    server.inject(r"^PATCH /channels/\d+/messages/", http=429, retry_after=0.2, times=2)
    server.inject(r"^PATCH /channels/\d+/messages/", drop=True, skip=1)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        await draft.show("One ")
        await seen(server, root, "One")
        await draft.show("One, two ")
        await seen(server, root, "One, two")
        assert isinstance(await draft.finish(reply(thread)), Delivered)
    assert [m["content"] for m in server.bot_messages(root)] == ["The answer."]


@pytest.mark.parametrize("fault", [{"drop": True, "after": True}, {"http": 503, "after": True}])
async def test_a_first_post_in_doubt_stands_there_once(server: DiscordServer, fault: dict[str, Any]) -> None:
    root = await server.mention("x")
    thread = place(server, root)
    server.inject(rf"^POST /channels/{root}/messages", **fault)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        await draft.show("One ")
        await server.wait_until(lambda: draft.remote_id, timeout=20)
        await draft.show("One, two ")
        await seen(server, root, "One, two")
        assert len(server.bot_messages(root)) == 1
        assert isinstance(await draft.finish(reply(thread)), Delivered)
    assert [m["content"] for m in server.bot_messages(root)] == ["The answer."]


async def test_a_draft_that_a_person_deletes_does_not_keep_the_answer_away(server: DiscordServer) -> None:
    root = await server.mention("x")
    thread = place(server, root)
    async with open_desk(server, sleep=hurried) as desk:
        draft = begin(desk, thread)
        await draft.show("One ")
        await server.delete((await seen(server, root, "One"))["id"])
        await draft.show("One, two ")
        await server.wait_until(lambda: server.calls_to("^PATCH"), timeout=20)
        assert isinstance(await draft.finish(reply(thread)), Delivered)
    assert [m["content"] for m in server.bot_messages(root)] == ["The answer."]
