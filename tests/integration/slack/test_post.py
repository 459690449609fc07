from __future__ import annotations

import asyncio

import pytest

from adapters.chat import Delivered, InDoubt, Rejected, Reply, RetryLater, ThreadRef
from adapters.slack.app import SlackAdapter
from tests.integration.slack.conftest import build_adapter
from tests.integration.slack.desk import HandClock
from tests.servers.slack import SlackServer


def thread(ts: str, channel: str = "C1OPS") -> ThreadRef:
    return ThreadRef(platform="slack", workspace="T0FAKE", channel=channel, thread=ts)


def reply(ts: str, text: str = "hello", key: str = "run-1/0", mentions: frozenset[str] = frozenset()) -> Reply:
    return Reply(thread=thread(ts), text=text, key=key, mentions=mentions)


async def test_a_reply_is_posted_into_its_thread(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    outcome = await adapter.post(reply(root, "**2** queries, see [plan](https://ex.test) <!channel> <@U2BOB>"))
    (posted,) = server.bot_messages("C1OPS", root)
    assert outcome == Delivered(remote_id=posted["ts"])
    assert posted["text"] == "*2* queries, see <https://ex.test|plan> &lt;!channel&gt; &lt;@U2BOB&gt;"
    assert posted["metadata"] == {"event_type": "hermod_reply", "event_payload": {"key": "run-1/0"}}
    (call,) = server.calls_to("chat.postMessage")
    assert (call.args["unfurl_links"], call.args["unfurl_media"], call.args["link_names"]) == (False, False, False)


async def test_only_the_people_of_the_reply_are_mentioned(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    await adapter.post(reply(root, "<@U1ALICE> <@U2BOB>", mentions=frozenset({"U1ALICE"})))
    assert server.bot_messages("C1OPS", root)[0]["text"] == "<@U1ALICE> &lt;@U2BOB&gt;"


async def test_a_reply_to_a_command_goes_into_the_channel(server: SlackServer, adapter: SlackAdapter) -> None:
    outcome = await server.slash("/hermod", "x")
    place = thread(f"command-{outcome.trigger_id}")
    posted = await adapter.post(Reply(thread=place, text="hi", key="k1"))
    assert isinstance(posted, Delivered)
    assert "thread_ts" not in server.calls_to("chat.postMessage")[0].args
    assert await adapter.find_posted(place, "k1") == posted
    assert await adapter.find_posted(place, "k2") is None


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("not_in_channel", "/invite @hermod"),
        ("channel_not_found", "/invite @hermod"),
        ("is_archived", "archived"),
        ("missing_scope", "reinstall"),
        ("invalid_auth", "token"),
        ("some_error_of_next_year", "some_error_of_next_year"),
    ],
)
async def test_a_refusal_says_what_to_do(server: SlackServer, adapter: SlackAdapter, error: str, remedy: str) -> None:
    root = await server.say("root")
    server.inject("chat.postMessage", error=error)
    outcome = await adapter.post(reply(root))
    assert isinstance(outcome, Rejected)
    assert remedy in outcome.reason
    assert server.bot_token not in outcome.reason


async def test_a_channel_without_us_is_refused_with_the_remedy(server: SlackServer, adapter: SlackAdapter) -> None:
    server.add_channel("C2FAR", "far", bot_in=False)
    outcome = await adapter.post(Reply(thread=thread("1700000000.000100", "C2FAR"), text="x", key="k"))
    reason = "Slack refused: not_in_channel; invite Hermod to the channel: /invite @hermod"
    assert outcome == Rejected(reason=reason, gone=True)


async def test_an_empty_reply_is_refused_without_a_call(server: SlackServer, adapter: SlackAdapter) -> None:
    assert isinstance(await adapter.post(reply("1.1", " \n")), Rejected)
    assert server.calls_to("chat.postMessage") == []


@pytest.mark.parametrize("fault", [{"http": 429, "retry_after": 7}, {"error": "ratelimited"}])
async def test_a_rate_limit_means_later_and_is_not_tried_again_by_itself(
    server: SlackServer, adapter: SlackAdapter, fault: dict[str, int]
) -> None:
    root = await server.say("root")
    server.inject("chat.postMessage", **fault)
    outcome = await adapter.post(reply(root))
    assert isinstance(outcome, RetryLater)
    assert outcome.after_s == (7 if "http" in fault else 1)
    assert len(server.calls_to("chat.postMessage")) == 1
    assert server.bot_messages("C1OPS") == []


async def test_a_channel_gets_a_short_burst_and_after_a_rate_limit_one_message_a_second(server: SlackServer) -> None:
    clock = HandClock()
    adapter = build_adapter(server, monotonic=clock.monotonic, sleep=clock.sleep)
    root = await server.say("root")
    assert [isinstance(await adapter.post(reply(root, key=f"burst{n}")), Delivered) for n in range(3)] == [True] * 3
    assert clock.slept == []  # a short burst
    assert await adapter.post(reply(root, key="k0")) == RetryLater(
        after_s=3.0, reason="more calls of chat.postMessage than Slack takes"
    )
    clock.seconds += 3.0
    server.inject("chat.postMessage", http=429, retry_after=3)
    assert await adapter.post(reply(root, key="k0")) == RetryLater(
        after_s=3.0, reason="Slack asks to wait (ratelimited)"
    )
    calls = len(server.calls_to("chat.postMessage"))
    early = await adapter.post(reply(root, key="k0"))
    assert isinstance(early, RetryLater)
    assert early.after_s == pytest.approx(3.0)
    assert len(server.calls_to("chat.postMessage")) == calls  # nothing was sent meanwhile
    clock.seconds += 3.0
    assert [isinstance(await adapter.post(reply(root, key=f"k{n}")), Delivered) for n in range(3)] == [True] * 3
    assert clock.slept == [pytest.approx(1.0), pytest.approx(1.0)]
    clock.seconds += 63.0  # calm again
    assert [isinstance(await adapter.post(reply(root, key=f"j{n}")), Delivered) for n in range(3)] == [True] * 3
    assert len(clock.slept) == 2
    await adapter.stop()


@pytest.mark.parametrize("stalled", ["while it waited", "before the call"])
async def test_a_process_that_stood_still_does_not_post(server: SlackServer, stalled: str) -> None:
    clock = HandClock()
    adapter = build_adapter(server, monotonic=clock.monotonic, sleep=clock.sleep)
    root = await server.say("root")
    server.inject("chat.postMessage", http=429, retry_after=1)
    assert isinstance(await adapter.post(reply(root, key="k0")), RetryLater)
    if stalled == "while it waited":
        clock.stalls = [10.0]
    else:
        clock.seconds += 100.0  # the channel is free, nothing waits
        clock.reads_until_stall = 2
    outcome = await adapter.post(reply(root, key="k1"))
    assert isinstance(outcome, RetryLater)
    assert "stood still" in outcome.reason
    assert server.bot_messages("C1OPS", root) == []
    clock.seconds += 10.0
    assert isinstance(await adapter.post(reply(root, key="k2")), Delivered)
    clock.stalls = [1.0]  # a busy machine
    assert isinstance(await adapter.post(reply(root, key="k3")), Delivered)
    await adapter.stop()


async def test_other_channels_do_not_wait(server: SlackServer, adapter: SlackAdapter) -> None:
    server.add_channel("C2DEV", "dev")
    one, two = await server.say("root"), await server.say("root", channel="C2DEV")
    server.inject("chat.postMessage", http=429, retry_after=30)
    assert isinstance(await adapter.post(reply(one)), RetryLater)
    assert isinstance(await adapter.post(Reply(thread=thread(two, "C2DEV"), text="x", key="k")), Delivered)


async def test_a_strict_workspace_gets_every_message_once(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    server.strict_rate_limits = True

    async def deliver(n: int) -> None:
        outcome = await adapter.post(reply(root, f"part {n}", f"k{n}"))
        for _ in range(9):
            if isinstance(outcome, RetryLater):
                await asyncio.sleep(outcome.after_s)  # the workspace counts in real seconds
                outcome = await adapter.post(reply(root, f"part {n}", f"k{n}"))
        assert isinstance(outcome, Delivered)

    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(deliver(n))
    assert sorted(m["text"] for m in server.bot_messages("C1OPS", root)) == [f"part {n}" for n in range(4)]


@pytest.mark.parametrize(
    "fault", [{"drop": True}, {"http": 500}, {"http": 503}, {"error": "internal_error"}, {"error": "fatal_error"}]
)
@pytest.mark.parametrize("after", [True, False])
async def test_a_post_in_doubt_is_settled_by_looking(
    server: SlackServer, adapter: SlackAdapter, fault: dict[str, bool], *, after: bool
) -> None:
    root = await server.say("root")
    server.inject("chat.postMessage", after=after, **fault)
    outcome = await adapter.post(reply(root, key="run-7/1"))
    assert isinstance(outcome, InDoubt)
    assert len(server.calls_to("chat.postMessage")) == 1  # Slack's client did not try again
    found = await adapter.find_posted(thread(root), "run-7/1")
    arrived = server.bot_messages("C1OPS", root)
    assert len(arrived) == after
    assert found == (Delivered(remote_id=arrived[0]["ts"]) if after else None)


async def test_a_post_that_is_never_answered_is_in_doubt(server: SlackServer, inbox: object) -> None:
    adapter = build_adapter(server, call_timeout_s=1.0)
    root = await server.say("root")
    server.inject("chat.postMessage", delay=3.0, after=True, error="internal_error")
    assert isinstance(await adapter.post(reply(root)), InDoubt)
    await adapter.stop()


async def test_a_refused_connection_is_no_doubt() -> None:
    adapter = SlackAdapter("xoxb-1", "xapp-1", "http://127.0.0.1:9/api/")
    assert isinstance(await adapter.post(reply("1700000000.000100")), RetryLater)
    await adapter.stop()


async def test_a_post_is_found_on_a_later_page_of_the_thread(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    for n in range(230):
        await server.bot_say(root, f"part {n}")
    posted = await adapter.post(reply(root, key="late"))
    assert await adapter.find_posted(thread(root), "late") == posted
    assert len(server.calls_to("conversations.replies")) == 2


async def test_metadata_of_somebody_else_proves_nothing(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    forged = {"event_type": "hermod_reply", "event_payload": {"key": "k"}}
    await server.say("not ours", thread_ts=root, extra={"metadata": forged, "bot_id": "B9"})
    assert await adapter.find_posted(thread(root), "k") is None


async def test_a_thread_that_cannot_be_read_stays_in_doubt(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    server.scopes = ("chat:write",)
    found = await adapter.find_posted(thread(root), "k")
    assert isinstance(found, InDoubt)
    assert "channels:history" in found.reason


async def test_a_status_is_shown_and_taken_away(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    await adapter.set_status(thread(root), "looking at the database")
    await adapter.set_status(thread(root), "")
    assert [(s["thread_ts"], s["status"]) for s in server.statuses] == [(root, "looking at the database"), (root, "")]


async def test_a_status_that_is_not_allowed_falls_quiet(server: SlackServer, adapter: SlackAdapter) -> None:
    root = await server.say("root")
    server.inject("assistant.threads.setStatus", error="missing_scope", times=9)
    for _ in range(3):
        await adapter.set_status(thread(root), "working")
    assert len(server.calls_to("assistant.threads.setStatus")) == 1


async def test_a_status_that_slack_refuses_is_shown_again_when_slack_takes_it(server: SlackServer) -> None:
    clock = HandClock()
    adapter = build_adapter(server, monotonic=clock.monotonic, sleep=clock.sleep)
    root = await server.say("root")
    server.inject("assistant.threads.setStatus", http=429, retry_after=5)
    await adapter.set_status(thread(root), "one")
    await adapter.set_status(thread(root), "two")
    clock.seconds += 5.0
    await adapter.set_status(thread(root), "three")
    assert len(server.calls_to("assistant.threads.setStatus")) == 2
    assert [s["status"] for s in server.statuses] == ["three"]
    await adapter.stop()


async def test_a_command_has_no_status(server: SlackServer, adapter: SlackAdapter) -> None:
    await adapter.set_status(thread("command-1.2.3"), "working")
    assert server.calls_to("assistant.threads.setStatus") == []
