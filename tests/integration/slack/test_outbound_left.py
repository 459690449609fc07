"""What a process that was killed left of an answer is found and removed, also where it recorded nothing of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from adapters.chat import Delivered
from adapters.slack.outbound import SlackOutbound
from tests.integration.slack.desk import ALICE, HandClock, open_outbound, place, reply, until
from tests.servers.slack import SlackServer


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer() as server:
        yield server


def texts(server: SlackServer, root: str) -> list[str]:
    return [str(message["text"]) for message in server.bot_messages("C1OPS", root)]


async def leave(outbound: SlackOutbound, root: str, text: str) -> str:
    """Write a draft, and end as a process that is killed; returns what it could have recorded."""
    draft = outbound.open_draft(place(root), asker=ALICE)
    assert draft is not None
    await draft.show(text)
    await until(lambda: draft.remote_id)
    return draft.remote_id


def _more_calls(server: SlackServer, calls: int) -> bool:
    return len(server.calls) > calls


@pytest.mark.parametrize("mode", ["stream", "edits"])
async def test_half_an_answer_that_was_never_recorded_is_removed(server: SlackServer, mode: str) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock(), drafts=mode) as dead:
        assert isinstance(await dead.post(reply(root, "An earlier answer.", key="run-0/1")), Delivered)
        await leave(dead, root, "One two ")
    assert texts(server, root) == ["An earlier answer.", "One two"]
    async with open_outbound(server) as outbound:
        await outbound.discard_draft(place(root), "")
    assert texts(server, root) == ["An earlier answer."]


async def test_a_second_message_that_was_not_recorded_goes_with_the_first(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as dead:
        first = await leave(dead, root, "One two ")
        await leave(dead, root, "Three four ")
    async with open_outbound(server) as outbound:
        await outbound.discard_draft(place(root), first)
    assert texts(server, root) == []


async def test_the_messages_of_a_finished_answer_stay(server: SlackServer) -> None:
    root = await server.say("root")
    long = "One two three. " * 1_500
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show(long)
        await until(lambda: "," in draft.remote_id)
        assert isinstance(await draft.finish(reply(root, long)), Delivered)
        before = texts(server, root)
        await outbound.discard_draft(place(root), "")
        await outbound.discard_draft(place(root), draft.remote_id.split(",")[0])
    assert len(before) > 1
    assert texts(server, root) == before


async def test_what_people_and_other_apps_wrote_stays(server: SlackServer) -> None:
    root = await server.bot_say(None, "A report.")
    await server.say("thanks", thread_ts=root)
    await server.other_bot_says("CI is red", thread_ts=root)
    before = [m["text"] for m in server.messages("C1OPS", root)]
    async with open_outbound(server) as outbound:
        await outbound.discard_draft(place(root), "")
    assert [m["text"] for m in server.messages("C1OPS", root)] == before


async def test_a_streamed_message_that_is_full_goes_on_in_another_one(server: SlackServer) -> None:
    """The best place to leave it may be before what is visible already, and a stream takes nothing back."""
    root = await server.say("root")
    blocks = [f"## Part {n}\n\n" + f"word{n} " * 700 for n in range(6)]
    text = "\n\n".join(block.rstrip() for block in blocks)
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        for end in range(400, len(text), 400):
            await draft.show(text[:end])
            calls = len(server.calls)
            await until(partial(_more_calls, server, calls))
        first = server.bot_messages("C1OPS", root)[0]["ts"]
        assert isinstance(await draft.finish(reply(root, text)), Delivered)
    found = server.bot_messages("C1OPS", root)
    assert found[0]["ts"] == first
    assert " ".join(" ".join(texts(server, root)).split()) == " ".join(text.split())
    assert len(server.calls_to("chat.startStream")) == len(found) > 1
    assert server.calls_to("chat.delete") == []
