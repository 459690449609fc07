"""Answers that people see while they are written."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import pytest

from adapters.chat import Attachment, Author, Button, Delivered, Delivery, InDoubt, PlanStep, RetryLater
from adapters.slack.outbound import SlackOutbound
from tests.integration.slack.desk import ALICE, HandClock, TurnedClock, open_outbound, place, reply, until
from tests.servers.slack import SlackServer
from tests.servers.slack.pings import find_pings

WORDS = "The primary is healthy. Two queries were slow. "


def texts(server: SlackServer, root: str) -> list[str]:
    return [m["text"] for m in server.bot_messages("C1OPS", root)]


async def seen(server: SlackServer, root: str, text: str) -> None:
    await server.wait_until(lambda: "".join(texts(server, root)).endswith(text))


async def write(server: SlackServer, outbound: SlackOutbound, root: str, *states: str) -> Any:
    """A draft that has shown each of ``states``, one after the other."""
    draft = outbound.open_draft(place(root), asker=ALICE)
    assert draft is not None
    for state in states:
        await draft.show(state)
        await seen(server, root, state.rstrip())
    return draft


async def test_an_answer_streams_and_becomes_the_reply(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One ", "One two ", "One two three ")
        ts = draft.remote_id
        outcome = await draft.finish(reply(root, "One two three four.", feedback="f1"))
        assert outcome == Delivered(remote_id=ts)
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
    (message,) = server.bot_messages("C1OPS", root)
    assert message["text"] == "One two three four."
    assert message["blocks"][0]["elements"][0]["positive_button"]["value"] == "f1/up"
    assert len(server.calls_to("chat.startStream")) == len(server.calls_to("chat.stopStream")) == 1
    assert server.calls_to("chat.postMessage") == []
    start = server.calls_to("chat.startStream")[0].args
    assert (start["recipient_user_id"], start["recipient_team_id"]) == ("U1ALICE", "T0FAKE")


async def test_steps_of_a_plan_are_shown_as_tasks(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show("", [PlanStep(id="1", title="slow queries <!here>", state="running", detail="target=shop")])
        await server.wait_until(lambda: server.streams)
        (stream,) = server.streams.values()
        await draft.show("Found ", [PlanStep(id="1", title="slow queries <!here>", state="done")])
        await server.wait_until(lambda: stream["tasks"]["1"]["status"] == "complete")
        await draft.show("Found ", [PlanStep(id="2", title="explain", state="running")])
        await server.wait_until(lambda: "2" in stream["tasks"])
        assert isinstance(await draft.finish(reply(root, "Found two.")), Delivered)
    assert stream["plan"] == "What I do"
    assert stream["tasks"]["1"]["title"] == "slow queries <\u200b!here>"
    assert stream["tasks"]["2"]["status"] == "complete"  # nothing spins for ever
    assert texts(server, root) == ["Found two."]


async def test_a_draft_that_showed_nothing_is_posted_instead(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        assert await draft.finish(reply(root)) is None
        await draft.abandon()
    assert texts(server, root) == []


async def test_an_answer_that_begins_anew_leaves_nothing_of_the_first_try(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "Wrong track ", "Right track ")
        assert isinstance(await draft.finish(reply(root, "Right track, done.")), Delivered)
    assert texts(server, root) == ["Right track, done."]


async def test_a_reply_that_is_another_text_replaces_the_draft(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        assert await draft.finish(reply(root, "Something else.")) is None
        assert texts(server, root) == []
        assert isinstance(await outbound.post(reply(root, "Something else.")), Delivered)
    assert texts(server, root) == ["Something else."]


async def test_an_abandoned_draft_disappears(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        await draft.abandon()
        await draft.show("One two three ")
        await draft.abandon()
        assert draft.remote_id == ""
    assert texts(server, root) == []


@pytest.mark.parametrize(
    "fault", [{"error": "missing_scope"}, {"error": "unknown_method"}, {"error": "invalid_arguments"}]
)
async def test_where_slack_does_not_stream_the_message_is_edited(server: SlackServer, fault: dict[str, str]) -> None:
    root = await server.say("root")
    server.inject("chat.startStream", times=99, **fault)
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One ", "One two ")
        outcome = await draft.finish(reply(root, "One two *three*.", buttons=(Button(name="b", label="B", value="v"),)))
        assert outcome == Delivered(remote_id=draft.remote_id)
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
        again = await write(server, outbound, second := await server.say("root 2"))
        await again.show("Three four ")
        await server.wait_until(lambda: texts(server, second))
        await again.abandon()
    (message,) = server.bot_messages("C1OPS", root)
    assert message["text"] == "One two _three_."
    assert message["blocks"][-1]["elements"][0]["value"] == "v"
    may_not = fault["error"] != "invalid_arguments"
    assert len(server.calls_to("chat.startStream")) == (1 if may_not else 2)  # else the next one may work


async def test_where_neither_streams_nor_posts_work_nothing_is_shown_and_nothing_raised(server: SlackServer) -> None:
    root = await server.say("root")
    server.inject("chat.startStream", times=99, error="missing_scope")
    server.inject("chat.postMessage", times=1, error="restricted_action")
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show("One two ")
        await server.wait_until(lambda: server.calls_to("chat.postMessage"))
        assert await draft.finish(reply(root, "One two.")) is None
        assert isinstance(await outbound.post(reply(root, "One two.")), Delivered)
    assert texts(server, root) == ["One two."]


async def test_without_an_asker_a_channel_gets_edits_and_a_direct_message_a_stream(server: SlackServer) -> None:
    root, direct = await server.say("root"), await server.say("hi", channel="D1ALICE")
    async with open_outbound(server, HandClock()) as outbound:
        one = outbound.open_draft(place(root), asker=None)
        two = outbound.open_draft(place(direct, "D1ALICE"), asker=None)
        assert one is not None
        assert two is not None
        await one.show("One two ")
        await two.show("One two ")
        await server.wait_until(lambda: server.calls_to("chat.startStream") and server.calls_to("chat.postMessage"))
        await one.abandon()
        await two.abandon()
    assert server.calls_to("chat.startStream")[0].args["channel"] == "D1ALICE"
    assert server.calls_to("chat.postMessage")[0].args["channel"] == "C1OPS"


async def test_b017_a_bot_that_asks_gets_the_whole_answer_as_a_new_message(server: SlackServer) -> None:
    """A peer bot that waits for the answer only saw the placeholder, since it is not told of edits."""
    async with open_outbound(server) as outbound:
        assert outbound.open_draft(place("1.1"), asker=Author(id="U9", name="peer", bot=True)) is None


async def test_b017_an_answer_that_mentions_somebody_is_a_new_message(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "Done, ")
        answer = reply(root, "Done, <@U2BOB>!", mentions=frozenset({"U2BOB"}))
        assert await draft.finish(answer) is None
        assert isinstance(await outbound.post(answer), Delivered)
    assert texts(server, root) == ["Done, <@U2BOB>!"]


async def test_a_streamed_text_pings_nobody(server: SlackServer) -> None:
    root = await server.say("root")
    evil = "Hello <!channel> <@U2BOB> [x](!here) and more"
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        for end in range(1, len(evil), 3):
            await draft.show(evil[:end])
            await asyncio.sleep(0)
        await server.wait_until(lambda: texts(server, root))
        assert isinstance(await draft.finish(reply(root, evil)), Delivered)
    (text,) = texts(server, root)
    assert find_pings({"text": text}) == set()
    assert [c for c in html.unescape(text) if c.isalnum()] == [c for c in evil if c.isalnum()]


async def test_b041_an_edited_answer_of_9000_characters_arrives_whole(server: SlackServer) -> None:
    """Edits above 4,000 bytes are refused although posts of 40,000 work; the rest was lost."""
    root = await server.say("root")
    paragraphs = [f"{n}. " + "Ünïcode words and more of them. " * 9 for n in range(30)]
    text = "\n\n".join(p.strip() for p in paragraphs)
    async with open_outbound(server, HandClock(), drafts="edits") as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        for end in range(0, len(text), 700):
            await draft.show(text[:end])
            await asyncio.sleep(0.01)
        outcome = await draft.finish(reply(root, text))
        while isinstance(outcome, RetryLater):
            outcome = await outbound.post(reply(root, text))
        assert isinstance(outcome, Delivered)
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
    shown = texts(server, root)
    assert " ".join("".join(shown).split()).replace(" ", "") == "".join(text.split())
    assert len(shown) > 2
    assert all(len(part.encode()) <= 4_000 for part in shown)
    assert "msg_too_long" not in [c.response.get("error") for c in server.calls]


async def test_code_that_goes_on_in_another_message_is_code_there_too(server: SlackServer) -> None:
    root = await server.say("root")
    text = (
        "Look:\n\n```sql\n"
        + "\n".join(f"select {n} from a_table where x = {n};" for n in range(200))
        + "\n```\n\nThat is all."
    )
    async with open_outbound(server, HandClock(), drafts="edits") as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show("Look:\n\n```sql\nselect 0 from a")
        await server.wait_until(lambda: texts(server, root))
        outcome = await draft.finish(reply(root, text))
        while isinstance(outcome, RetryLater):
            outcome = await outbound.post(reply(root, text))
        assert isinstance(outcome, Delivered)
    shown = texts(server, root)
    assert len(shown) > 1
    assert all(part.count("```") % 2 == 0 for part in shown)
    assert not any("select" in re.sub(r"```.*?```", "", part, flags=re.S) for part in shown)
    for n in range(200):
        assert sum(f"select {n} from a_table where x = {n};" in part for part in shown) == 1


async def test_a_stream_that_is_full_goes_on_in_a_new_one(server: SlackServer) -> None:
    root = await server.say("root")
    text = "\n\n".join(f"Paragraph {n}: " + "word " * 60 for n in range(90)).strip()
    assert len(text) > 25_000
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        for end in range(0, len(text), 2_500):
            await draft.show(text[:end])
            await asyncio.sleep(0.02)
        outcome = await draft.finish(reply(root, text))
        while isinstance(outcome, RetryLater):
            outcome = await outbound.post(reply(root, text))
        assert isinstance(outcome, Delivered)
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
    assert "".join("".join(texts(server, root)).split()) == "".join(text.split())
    assert {s["state"] for s in server.streams.values()} == {"completed"}


async def test_a_full_stream_that_cannot_be_ended_now_loses_nothing(server: SlackServer) -> None:
    root = await server.say("root")
    text = "\n\n".join(f"Paragraph {n}: " + "word " * 60 for n in range(60)).strip()
    server.inject("chat.stopStream", http=429, retry_after=5, times=1)
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        for end in range(0, len(text), 2_500):
            await draft.show(text[:end])
            await asyncio.sleep(0.02)
        outcome = await draft.finish(reply(root, text))
        while isinstance(outcome, RetryLater):
            outcome = await outbound.post(reply(root, text))
        assert isinstance(outcome, Delivered)
    assert "".join("".join(texts(server, root)).split()) == "".join(text.split())
    assert {s["state"] for s in server.streams.values()} == {"completed"}


@pytest.mark.parametrize(
    ("drafts", "method", "most"), [("edits", "chat.update", 20), ("stream", "chat.appendStream", 28)]
)
async def test_b060_2000_tokens_in_20_s_are_a_few_calls_and_the_first_comes_quickly(
    server: SlackServer, drafts: str, method: str, most: int
) -> None:
    """Editing for every token exceeds the tier."""
    root, clock = await server.say("root"), TurnedClock()
    async with open_outbound(server, clock, drafts=drafts) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        text = ""
        for n in range(2_000):
            text += "w " if n % 3 else "\n\n"
            await draft.show(text)
            await clock.advance(0.01)
            if n == 50:
                await server.wait_until(lambda: texts(server, root))
        assert isinstance(await draft.finish(reply(root, text.strip())), Delivered)
    assert 5 <= len(server.calls_to(method)) <= most
    assert "".join("".join(texts(server, root)).split()) == "".join(text.split())


@pytest.mark.parametrize("way", ["expired", "stopped_by_user"])
async def test_b061_what_a_stream_that_ended_did_not_take_follows_in_a_new_message(
    server: SlackServer, way: str
) -> None:
    """Slack ends a stream after some minutes; the rest of the answer was lost silently."""
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two three ")
        (stream,) = server.streams.values()
        stream["state"] = way
        answer = reply(root, "One two three four five.", feedback="f")
        outcome = await draft.finish(answer)
        assert isinstance(outcome, Delivered)
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
    assert texts(server, root) == ["One two three", "four five."]


async def test_b061_what_an_ended_stream_held_back_is_not_lost(server: SlackServer) -> None:
    """A link whose end had not come yet was not shown."""
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show("See the [page of it](https://ex.test/a ")
        await seen(server, root, "See the ")
        next(iter(server.streams.values()))["state"] = "expired"
        assert isinstance(await draft.finish(reply(root, "See the [page of it](https://ex.test/a) now.")), Delivered)
    assert texts(server, root) == ["See the ", "<https://ex.test/a|page of it> now."]


async def test_b061_a_long_answer_goes_on_after_its_stream_ended(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        server.clock.advance(server.stream_ttl + 1)
        await draft.show("One two three four ")
        await server.wait_until(lambda: len(server.streams) == 2)
        await seen(server, root, "three four")
        assert isinstance(await draft.finish(reply(root, "One two three four five.")), Delivered)
    assert texts(server, root) == ["One two", "three four five."]


async def test_b061_a_stream_that_ended_with_the_whole_text_only_gets_its_key(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two. ")
        next(iter(server.streams.values()))["state"] = "expired"
        outcome = await draft.finish(reply(root, "One two."))
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
    assert texts(server, root) == ["One two."]


async def test_who_pressed_stop_sees_no_more_of_the_stream(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        next(iter(server.streams.values()))["state"] = "stopped_by_user"
        await draft.show("One two three four ")
        await server.wait_until(lambda: any(c.response.get("error") == "stopped_by_user" for c in server.calls))
        await until(lambda: not any(t.get_name().startswith("slack-draft") for t in asyncio.all_tasks()))
        await draft.show("One two three four five six ")
        assert len(server.streams) == 1
        assert isinstance(await draft.finish(reply(root, "One two three.")), Delivered)
    assert texts(server, root) == ["One two", "three."]


async def test_b062_the_team_of_the_thread_is_told_to_the_stream(server: SlackServer) -> None:
    """A button's payload has no ``team_id`` at the place where a message has it."""
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        assert server.calls_to("chat.startStream")[0].args["recipient_team_id"] == place(root).workspace
        await draft.abandon()


async def test_b063_a_streamed_answer_is_not_posted_again(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "All of it. ")
        outcome = await draft.finish(reply(root, "All of it."))
        assert isinstance(outcome, Delivered)
        assert await outbound.find_posted(place(root), "run-1/1") == outcome
    assert texts(server, root) == ["All of it."]


@pytest.mark.parametrize(
    "fault", [{"error": "user_not_found"}, {"http": 500}, {"drop": True}, {"drop": True, "after": True}]
)
async def test_b064_a_short_answer_whose_stream_fails_arrives_once(server: SlackServer, fault: dict[str, Any]) -> None:
    root = await server.say("root")
    server.inject("chat.startStream", times=1, **fault)
    async with open_outbound(server, HandClock()) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show("Yes it is ")
        await until(lambda: server.calls_to("chat.startStream"))
        answer = reply(root, "Yes it is.")
        outcome = await draft.finish(answer)
        if outcome is None:
            outcome = await outbound.post(answer)
        assert isinstance(outcome, Delivered)
    assert texts(server, root) == ["Yes it is."]


@pytest.mark.parametrize("after", [True, False])
async def test_an_append_in_doubt_makes_the_answer_a_new_post(server: SlackServer, *, after: bool) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        server.inject("chat.appendStream", drop=True, after=after)
        await draft.show("One two three ")
        await until(lambda: server.calls_to("chat.appendStream"))
        answer = reply(root, "One two three four.")
        assert await draft.finish(answer) is None
        assert isinstance(await outbound.post(answer), Delivered)
    assert texts(server, root) == ["One two three four."]


@pytest.mark.parametrize("after", [True, False])
async def test_an_end_in_doubt_is_settled_by_looking_and_arrives_once(server: SlackServer, *, after: bool) -> None:
    root = await server.say("root")
    answer = reply(root, "One two three.")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        server.inject("chat.stopStream", drop=True, after=after)
        assert isinstance(await draft.finish(answer), InDoubt)
        found: Delivery | None = await outbound.find_posted(place(root), answer.key)
        if found is None:
            found = await outbound.post(answer)
        assert isinstance(found, Delivered)
    assert texts(server, root) == ["One two three."]
    assert len(server.calls_to("chat.postMessage")) == (not after)  # an end that may still come is not tried again


async def test_an_end_that_has_to_wait_a_little_is_made_up_for_by_the_next_try(server: SlackServer) -> None:
    root = await server.say("root")
    clock = HandClock()
    answer = reply(root, "One two three.")
    async with open_outbound(server, clock) as outbound:
        draft = await write(server, outbound, root, "One two ")
        server.inject("chat.stopStream", http=429, retry_after=5)
        assert await draft.finish(answer) == RetryLater(after_s=5.0, reason="Slack asks to wait (ratelimited)")
        early = await outbound.post(answer)
        assert isinstance(early, RetryLater)
        clock.seconds += 5.0
        assert await outbound.post(answer) == Delivered(remote_id=draft.remote_id)
    assert texts(server, root) == ["One two three."]
    assert server.calls_to("chat.postMessage") == []


async def test_an_end_that_has_to_wait_long_is_posted_instead(server: SlackServer) -> None:
    root = await server.say("root")
    answer = reply(root, "One two three.")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        server.inject("chat.stopStream", http=429, retry_after=40)
        assert await draft.finish(answer) is None
        assert isinstance(await outbound.post(answer), Delivered)
    assert texts(server, root) == ["One two three."]


async def test_an_end_that_has_to_wait_long_is_waited_for_where_the_draft_cannot_go(server: SlackServer) -> None:
    root = await server.say("root")
    clock = HandClock()
    answer = reply(root, "One two three.")
    async with open_outbound(server, clock) as outbound:
        draft = await write(server, outbound, root, "One two ")
        server.inject("chat.stopStream", http=429, retry_after=40)
        server.inject("chat.delete", http=429, retry_after=40)
        assert isinstance(await draft.finish(answer), RetryLater)
        clock.seconds += 40.0
        assert isinstance(await outbound.post(answer), Delivered)
    assert texts(server, root) == ["One two three."]


async def test_a_stream_that_slack_does_not_delete_is_stopped_first(server: SlackServer) -> None:
    root = await server.say("root")
    server.inject("chat.delete", error="streaming_state_conflict", times=1)
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        await draft.abandon()
    assert texts(server, root) == []
    assert len(server.calls_to("chat.stopStream")) == 1


async def test_progress_that_has_to_wait_is_merged_and_shown_later(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One ")
        server.inject("chat.appendStream", http=429, retry_after=3)
        for text in ("One two ", "One two three ", "One two three four "):
            await draft.show(text)
        await seen(server, root, "four")
        assert len(server.calls_to("chat.appendStream")) == 2
        assert isinstance(await draft.finish(reply(root, "One two three four.")), Delivered)
    assert texts(server, root) == ["One two three four."]


async def test_when_streams_are_used_up_for_this_minute_the_next_answer_is_edited(server: SlackServer) -> None:
    async with open_outbound(server, HandClock()) as outbound:
        root = await server.say("root")
        server.inject("chat.startStream", http=429, retry_after=30)
        draft = await write(server, outbound, root, "One two ")
        assert isinstance(await draft.finish(reply(root, "One two three.")), Delivered)
        assert len(server.calls_to("chat.postMessage")) == 1
        again = await server.say("again")
        assert texts(server, root) == ["One two three."]
        other = outbound.open_draft(place(again), asker=ALICE)
        assert other is not None
        await other.abandon()


async def test_a_draft_of_a_dead_process_is_removed(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as dead:
        draft = await write(server, dead, root, "One two ")
        left = draft.remote_id
    assert texts(server, root) == ["One two"]
    async with open_outbound(server) as outbound:
        await outbound.discard_draft(place(root), left)
        await outbound.discard_draft(place(root), left)
        await outbound.discard_draft(place(root), "")
    assert texts(server, root) == []


async def test_a_draft_of_a_dead_process_that_is_the_reply_by_now_stays(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as dead:
        draft = await write(server, dead, root, "One two ")
        assert isinstance(await draft.finish(reply(root, "One two three.")), Delivered)
    async with open_outbound(server) as outbound:
        await outbound.discard_draft(place(root), draft.remote_id)
        server.inject("conversations.replies", error="internal_error")
        await outbound.discard_draft(place(root), draft.remote_id)
    assert texts(server, root) == ["One two three."]


async def test_a_draft_that_may_not_be_deleted_points_to_the_answer_below(server: SlackServer) -> None:
    root = await server.say("root")
    server.inject("chat.delete", error="cant_delete_message", times=9)
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "One two ")
        assert await draft.finish(reply(root, "Else.")) is None
    assert texts(server, root) == ["_(continued below)_"]


async def test_files_follow_a_streamed_answer(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server, HandClock()) as outbound:
        draft = await write(server, outbound, root, "See file ")
        answer = reply(root, "See file.", files=(Attachment(name="rows.csv", content="a,b\n1,2\n"),))
        assert isinstance(await draft.finish(answer), Delivered)
    assert [f["name"] for m in server.bot_messages("C1OPS", root) for f in m.get("files", [])] == ["rows.csv"]


async def test_a_process_that_stood_still_shows_nothing_more(server: SlackServer) -> None:
    root = await server.say("root")
    clock = HandClock()
    clock.stalls = [10.0]
    async with open_outbound(server, clock) as outbound:
        draft = outbound.open_draft(place(root), asker=ALICE)
        assert draft is not None
        await draft.show("One two ")
        await until(lambda: clock.slept)
        await draft.abandon()
    assert server.calls_to("chat.startStream") == []
