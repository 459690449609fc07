from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack import SlackServer
from tests.servers.slack.conftest import refusal

WHO: dict[str, Any] = {"recipient_user_id": "U1ALICE", "recipient_team_id": "T0FAKE"}


async def start(server: SlackServer, client: AsyncWebClient, **more: Any) -> tuple[str, str]:
    root = await server.say("root")
    answer = await client.chat_startStream(channel="C1OPS", thread_ts=root, **WHO, **more)
    return root, str(answer["ts"])


async def test_a_stream_grows_and_ends_with_blocks_metadata_and_a_status(
    server: SlackServer, client: AsyncWebClient
) -> None:
    root, ts = await start(server, client, markdown_text="one ", task_display_mode="plan")
    await client.agents_sessions_setStatus(channel_id="C1OPS", thread_ts=root, status="processing", title="t")
    task = {"type": "task_update", "id": "1", "title": "look", "status": "in_progress"}
    await client.chat_appendStream(channel="C1OPS", ts=ts, chunks=[{"type": "plan_update", "title": "Plan"}, task])
    await client.chat_appendStream(channel="C1OPS", ts=ts, chunks=[{**task, "status": "complete", "output": "ok"}])
    await client.chat_appendStream(channel="C1OPS", ts=ts, markdown_text="two")
    assert await refusal(client, "chat.update", channel="C1OPS", ts=ts, text="x") == "streaming_state_conflict"
    meta = {"event_type": "e", "event_payload": {"key": "k"}}
    await client.chat_stopStream(channel="C1OPS", ts=ts, blocks=[{"type": "divider"}], metadata=meta)
    (message,) = server.bot_messages("C1OPS", root)
    stream = server.streams[ts]
    assert (message["text"], message["metadata"], message["blocks"][0]["type"]) == ("one two", meta, "divider")
    assert (stream["plan"], stream["tasks"]["1"]["status"], stream["state"]) == ("Plan", "complete", "completed")
    assert server.session(root)["status"] == "active"
    closed = await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, markdown_text="x")
    assert closed == "message_not_in_streaming_state"


async def test_the_helper_of_slacks_client_streams(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("root")
    stream = await client.chat_stream(channel="C1OPS", thread_ts=root, buffer_size=4, **WHO)
    for word in ("a long ", "answer ", "in pieces"):
        await stream.append(markdown_text=word)
    await stream.stop()
    assert server.bot_messages("C1OPS", root)[0]["text"] == "a long answer in pieces"


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "markdown_text"},
        {"type": "task_update", "id": "1", "title": "x", "status": "done"},
        {"type": "task_update", "title": "x", "status": "pending"},
        {"type": "plan_update"},
        {"type": "picture"},
    ],
)
async def test_a_chunk_of_another_shape_is_refused(
    server: SlackServer, client: AsyncWebClient, chunk: dict[str, Any]
) -> None:
    _, ts = await start(server, client)
    assert await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, chunks=[chunk]) == "invalid_chunks"


async def test_more_than_12000_characters_at_once_are_refused(server: SlackServer, client: AsyncWebClient) -> None:
    root, ts = await start(server, client)
    chunks = [{"type": "markdown_text", "text": "x" * 6001}] * 2
    assert (
        await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, markdown_text="x" * 12_001) == "msg_too_long"
    )
    assert await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, chunks=chunks) == "msg_too_long"
    assert server.bot_messages("C1OPS", root)[0]["text"] == ""


async def test_a_stream_ends_by_itself_after_five_minutes(server: SlackServer, client: AsyncWebClient) -> None:
    _, ts = await start(server, client)
    server.fast_forward(299)
    assert await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, markdown_text="x") == "ok"
    server.fast_forward(2)
    ended = await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, markdown_text="x")
    assert ended == "message_not_in_streaming_state"


async def test_the_stop_button_stops_streams_and_leaves_the_status_to_the_app(
    server: SlackServer, client: AsyncWebClient
) -> None:
    root, ts = await start(server, client, markdown_text="x")
    with pytest.raises(LookupError, match="not processing"):
        await server.press_stop(root)
    answer = await client.agents_sessions_setStatus(
        channel_id="C1OPS", thread_ts=root, status="processing", title="one"
    )
    assert "warning" not in answer.data
    assert await server.press_stop(root) == [ts]
    assert await refusal(client, "chat.appendStream", channel="C1OPS", ts=ts, markdown_text="y") == "stopped_by_user"
    assert server.session(root)["status"] == "processing"
    await client.agents_sessions_setStatus(channel_id="C1OPS", thread_ts=root, status="active", title="two")
    assert server.session(root)["title"] == "one"  # a title counts on creation only
    await client.agents_sessions_rename(channel_id="C1OPS", thread_ts=root, title="three")
    assert server.session(root) == {"title": "three", "initiator": "", "status": "active"}


async def test_without_the_event_there_is_a_warning_and_no_button(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("root")
    server.set_knobs(subscriptions=["app_mention"])
    answer = await client.agents_sessions_setStatus(channel_id="C1OPS", thread_ts=root, status="processing")
    assert answer["warning"] == "missing_agent_session_stopped_event_subscription"
    with pytest.raises(LookupError, match="did not subscribe"):
        await server.press_stop(root)


async def test_an_app_that_is_no_agent_has_no_sessions(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("root")
    server.agent = False
    call = {"channel_id": "C1OPS", "thread_ts": root, "status": "active"}
    assert await refusal(client, "agents.sessions.setStatus", **call) == "app_not_agent"


async def test_a_status_is_gone_after_two_minutes_or_with_the_next_message(
    server: SlackServer, client: AsyncWebClient
) -> None:
    root = await server.say("root")
    call: dict[str, Any] = {"channel_id": "C1OPS", "thread_ts": root}
    await client.assistant_threads_setStatus(**call, status="looking")
    assert server.shown_status(root) == "looking"
    server.fast_forward(121)
    assert server.shown_status(root) == ""
    await client.assistant_threads_setStatus(**call, status="looking again")
    assert server.shown_status(root) == "looking again"
    await client.chat_postMessage(channel="C1OPS", thread_ts=root, text="found")
    assert server.shown_status(root) == ""
