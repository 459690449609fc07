"""Posts with buttons, private ones, answers by response_url, signs and sessions."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from adapters.chat import Button, Delivered, InDoubt, Rejected, Reply, RetryLater
from adapters.slack.client import SlackClient
from adapters.slack.respond import USES, ResponseUrls
from tests.integration.slack.desk import ALICE, HandClock, open_outbound, place, reply, until
from tests.servers.slack import Outcome, SlackServer

BUTTONS = (
    Button(name="approve", label="Approve", value="a1", style="primary"),
    Button(name="deny", label="Deny", value="a1", style="danger"),
)
WIDE_TABLE = "| a | b |\n|---|---|\n" + "\n".join(f"| {n} | {'x' * 90} |" for n in range(150))


def command_reply(
    outcome: Outcome, text: str = "hi", key: str = "k1", *, private: bool = False, url: str = ""
) -> Reply:
    return Reply(
        thread=place(f"command-{outcome.trigger_id}"),
        text=text,
        key=key,
        private_to="U1ALICE" if private else "",
        respond_to=url or outcome.response_url,
    )


# -- buttons and blocks


async def test_buttons_and_thumbs_stand_under_the_text(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        answer = reply(root, "**Kill** 4711 <!here>?", buttons=BUTTONS, feedback="run-1")
        assert isinstance(await outbound.post(answer), Delivered)
    (message,) = server.bot_messages("C1OPS", root)
    *_, actions, thumbs = message["blocks"]
    assert [(b["action_id"], b["value"], b["style"]) for b in actions["elements"]] == [
        ("approve", "a1", "primary"),
        ("deny", "a1", "danger"),
    ]
    (element,) = thumbs["elements"]
    assert (thumbs["type"], element["type"], element["action_id"]) == (
        "context_actions",
        "feedback_buttons",
        "feedback",
    )
    assert (element["positive_button"]["value"], element["negative_button"]["value"]) == ("run-1/up", "run-1/down")
    assert message["text"] == "*Kill* 4711 &lt;!here&gt;?"


async def test_buttons_of_one_name_stand_in_rows_of_their_own(server: SlackServer) -> None:
    root = await server.say("root")
    buttons = tuple(Button(name="pick", label="L" * 99, value=f"v{n}") for n in range(3))
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, buttons=buttons)), Delivered)
    rows = [b for b in server.bot_messages("C1OPS", root)[0]["blocks"] if b["type"] == "actions"]
    assert [[e["value"] for e in row["elements"]] for row in rows] == [["v0"], ["v1"], ["v2"]]
    assert all(len(e["text"]["text"]) <= 75 for row in rows for e in row["elements"])


@pytest.mark.parametrize("text", ["y" * 3_001, "a\n\n" * 40 + "y" * 7_000, "x" * 20_000])
async def test_b042_a_text_above_the_limits_of_blocks_is_posted(server: SlackServer, text: str) -> None:
    """A section above 3,000 or blocks above 13,200 characters were refused, and the thread went quiet."""
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, text, buttons=BUTTONS)), Delivered)
    assert not [c for c in server.calls if c.response.get("ok") is False]


@pytest.mark.parametrize(("refusals", "blocks"), [(1, True), (2, True), (3, False)])
async def test_b043_blocks_that_slack_refuses_do_not_cost_the_answer(
    server: SlackServer, refusals: int, blocks: bool
) -> None:
    """Real query output broke the table schema, and the whole answer was lost."""
    root = await server.say("root")
    server.inject("chat.postMessage", error="invalid_blocks", times=refusals)
    clock = HandClock()
    async with open_outbound(server, clock) as outbound:
        answer = reply(root, "Result:\n\n| a | b |\n|---|---|\n| 1 |  |", buttons=BUTTONS, key="t")
        outcome = await outbound.post(answer)
        while isinstance(outcome, RetryLater):
            clock.seconds += outcome.after_s
            outcome = await outbound.post(answer)
        assert isinstance(outcome, Delivered)
    (message,) = server.bot_messages("C1OPS", root)
    assert "Result:" in message["text"]
    assert bool(message.get("blocks")) is blocks
    assert any(b["type"] == "table" for b in message.get("blocks", [])) is False


async def test_b043_a_table_with_nothing_in_a_cell_and_too_many_rows_is_posted(server: SlackServer) -> None:
    root = await server.say("root")
    table = "| id | text | n |\n|---|---|---|\n" + "\n".join(
        f"| {n} | {'' if n % 2 else 'w' * 400} |  |" for n in range(150)
    )
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, table)), Delivered)
    assert server.bot_messages("C1OPS", root)
    assert not [c for c in server.calls if c.response.get("ok") is False]


async def test_b023_a_post_elsewhere_takes_no_thread_along(server: SlackServer) -> None:
    """A message to another channel kept the origin's thread_ts."""
    server.add_channel("C2DEV", "dev")
    await server.say("origin")
    other = await server.say("root there", channel="C2DEV")
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(other, channel="C2DEV")), Delivered)
    (call,) = server.calls_to("chat.postMessage")
    assert (call.args["channel"], call.args["thread_ts"]) == ("C2DEV", other)
    assert server.violations == []


async def test_b056_a_page_that_is_rate_limited_is_no_end_of_the_process(server: SlackServer) -> None:
    """Paging met a 429, and the process died."""
    root = await server.say("root")
    for n in range(210):
        await server.bot_say(root, f"part {n}")
    clock = HandClock()
    async with open_outbound(server, clock) as outbound:
        server.inject("conversations.replies", http=429, retry_after=9)
        found = await outbound.find_posted(place(root), "k")
        assert isinstance(found, InDoubt)
        assert isinstance(await outbound.find_posted(place(root), "k"), InDoubt)
        assert len(server.calls_to("conversations.replies")) == 1  # Retry-After is kept
        clock.seconds += 9.0
        assert await outbound.find_posted(place(root), "k") is None


async def test_the_answer_is_posted_while_other_kinds_of_calls_are_held_back(server: SlackServer) -> None:
    root = await server.say("root")
    for method in ("assistant.threads.setStatus", "reactions.add", "conversations.replies", "chat.update"):
        server.inject(method, http=429, retry_after=60)
    async with open_outbound(server) as outbound:
        await outbound.set_status(place(root), "x")
        await outbound.react(place(root), root, "seen")
        assert await outbound.fetch_history(place(root), limit=5) == ()
        assert isinstance(await outbound.post(reply(root)), Delivered)


# -- private answers and commands


async def test_a_private_answer_is_seen_by_one_person(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(reply(root, "psst", private_to="U1ALICE")), Delivered)
    (shown,) = server.ephemerals
    assert (shown["user"], shown["thread_ts"], shown["text"]) == ("U1ALICE", root, "psst")
    assert server.bot_messages("C1OPS") == []


async def test_a_private_answer_to_a_command_uses_its_address_at_most_five_times(server: SlackServer) -> None:
    outcome = await server.slash("/hermod", "x")
    async with open_outbound(server) as outbound:
        for n in range(USES + 2):
            answer = command_reply(outcome, f"part {n}", f"k{n}", private=True)
            assert isinstance(await outbound.post(answer), Delivered)
    assert [body["text"] for body in outcome.responses] == [f"part {n}" for n in range(USES)]
    assert {body["response_type"] for body in outcome.responses} == {"ephemeral"}
    assert [shown["text"] for shown in server.ephemerals] == [f"part {n}" for n in range(USES + 2)]


async def test_an_address_is_used_up_after_five_tries_that_failed_too(server: SlackServer) -> None:
    outcome = await server.slash("/hermod", "x")
    client = SlackClient(bot_token=server.bot_token, app_token="", api_url=server.base_url)
    urls = ResponseUrls(client, time.monotonic)
    url = f"{server.origin}/respond/no-such-key"
    for _ in range(USES):
        assert urls.usable(url)
        assert await urls.post(url, text="x", blocks=(), private=True) is not None
    assert not urls.usable(url)
    used = await urls.post(url, text="x", blocks=(), private=True)
    assert used is not None
    assert used.code == "used_url"
    assert urls.usable(outcome.response_url)
    await client.close()


async def test_an_address_older_than_half_an_hour_is_not_used(server: SlackServer) -> None:
    outcome = await server.slash("/hermod", "x")
    clock = HandClock()
    async with open_outbound(server, clock) as outbound:
        assert isinstance(await outbound.post(command_reply(outcome, "soon", private=True)), Delivered)
        clock.seconds += 1_801
        assert isinstance(await outbound.post(command_reply(outcome, "late", private=True)), Delivered)
    assert [body["text"] for body in outcome.responses] == ["soon"]
    assert [shown["text"] for shown in server.ephemerals] == ["soon", "late"]


async def test_a_public_answer_to_a_command_is_posted_by_the_bot_and_can_be_found(server: SlackServer) -> None:
    outcome = await server.slash("/hermod", "x")
    async with open_outbound(server) as outbound:
        answer = command_reply(outcome)
        posted = await outbound.post(answer)
        assert await outbound.find_posted(answer.thread, "k1") == posted
    assert outcome.responses == []
    assert [m["text"] for m in server.bot_messages("C1OPS")] == ["hi"]


async def test_where_the_bot_may_not_post_the_asker_sees_the_answer(server: SlackServer) -> None:
    server.add_channel("C2FAR", "far", bot_in=False)
    outcome = await server.slash("/hermod", "x", channel="C2FAR")
    answer = Reply(thread=place("command-1.2.3", "C2FAR"), text="hi", key="k", respond_to=outcome.response_url)
    async with open_outbound(server) as outbound:
        assert isinstance(await outbound.post(answer), Delivered)
    assert [(body["text"], body["response_type"]) for body in outcome.responses] == [("hi", "ephemeral")]


async def test_an_address_elsewhere_is_never_called(server: SlackServer) -> None:
    outcome = await server.slash("/hermod", "x")
    async with open_outbound(server) as outbound:
        for url in ("http://169.254.169.254/latest", "https://example.test/x", "file:///etc/passwd", "https://[bad"):
            answer = command_reply(outcome, private=True, url=url)
            assert isinstance(await outbound.post(answer), Delivered)
    assert len(server.ephemerals) == 4
    assert outcome.responses == []


async def test_a_private_answer_in_doubt_is_not_said_to_be_missing(server: SlackServer) -> None:
    root = await server.say("root")
    server.inject("chat.postEphemeral", drop=True, after=True)
    async with open_outbound(server) as outbound:
        answer = reply(root, "psst", private_to="U1ALICE")
        assert isinstance(await outbound.post(answer), InDoubt)
        assert isinstance(await outbound.find_posted(answer.thread, answer.key), InDoubt)


async def test_a_private_answer_that_is_not_possible_is_refused_with_the_remedy(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        outcome = await outbound.post(reply(root, "psst", private_to="U404"))
    assert outcome == Rejected(reason="Slack refused: user_not_in_channel; the person is not in the channel")


# -- signs and sessions


async def test_signs_come_and_go_and_twice_is_no_error(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        for sign in ("queued", "queued", "-queued", "-queued", "stopped", "no such sign"):
            await outbound.react(place(root), root, sign)
    assert [name for _, _, name, _ in server.reactions] == ["octagonal_sign"]
    assert len(server.calls_to("reactions.add")) == 3


async def test_signs_that_are_not_allowed_fall_quiet(server: SlackServer) -> None:
    root = await server.say("root")
    server.inject("reactions.add", error="missing_scope", times=9)
    async with open_outbound(server) as outbound:
        for sign in ("queued", "-queued", "seen"):
            await outbound.react(place(root), root, sign)
    assert len(server.calls_to("reactions.add")) == 1
    assert server.calls_to("reactions.remove") == []


async def test_a_session_shows_that_it_works_and_stops(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        for text in ("thinking", "looking", "", ""):
            await outbound.set_status(place(root), text)
    assert [c.args["status"] for c in server.calls_to("agents.sessions.setStatus")] == ["processing", "active"]
    assert [s["status"] for s in server.statuses] == ["thinking", "looking", ""]


async def test_an_answer_ends_what_its_session_shows_and_the_next_turn_shows_again(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        for number in range(2):
            await outbound.set_status(place(root), "thinking")
            assert server.session(root)["status"] == "processing"
            draft = outbound.open_draft(place(root), asker=ALICE)
            assert draft is not None
            await draft.show("One two ")
            await until(partial(getattr, draft, "remote_id"))
            server.stop_stream_as_user(draft.remote_id)
            answer = reply(root, "One two three.", key=f"run-{number}/1")
            assert isinstance(await draft.finish(answer), Delivered)
            assert server.session(root)["status"] == "active"


async def test_what_only_one_person_sees_takes_the_status_away_too(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        await outbound.set_status(place(root), "thinking")
        assert isinstance(await outbound.post(reply(root, private_to="U1ALICE")), Delivered)
    assert server.shown_status(root) == ""
    assert server.session(root)["status"] == "active"


async def test_a_deleted_thread_does_not_take_the_sessions_of_others_away(server: SlackServer) -> None:
    root = await server.say("root")
    async with open_outbound(server) as outbound:
        server.inject("agents.sessions.setStatus", error="invalid_thread_ts")
        await outbound.set_status(place("1.1"), "thinking")
        await outbound.set_status(place(root), "thinking")
    assert server.session(root)["status"] == "processing"


@pytest.mark.parametrize("fault", [{"error": "app_not_agent"}, {"error": "unknown_method"}])
async def test_without_sessions_the_status_is_shown_all_the_same(server: SlackServer, fault: dict[str, Any]) -> None:
    one, two = await server.say("one"), await server.say("two")
    server.inject("agents.sessions.setStatus", times=9, **fault)
    async with open_outbound(server) as outbound:
        await outbound.set_status(place(one), "x")
        await outbound.set_status(place(two), "x")
    assert len(server.calls_to("agents.sessions.setStatus")) == 1
    assert len(server.statuses) == 2
