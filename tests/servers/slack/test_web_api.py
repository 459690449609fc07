"""Every method names its reference page, checks its arguments, and refuses what Slack refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack import SlackServer
from tests.servers.slack.conftest import refusal

ROOT = "1700000000.000100"  # no message of any channel
MARKDOWN = [{"type": "markdown_text", "text": "x"}]

REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("agents.sessions.rename", {"channel_id": "C1OPS", "thread_ts": "here", "title": ""}, "invalid_arguments"),
    ("agents.sessions.rename", {"channel_id": "C1OPS", "thread_ts": "here", "title": "x"}, "session_not_found"),
    ("agents.sessions.setStatus", {"channel_id": "C1OPS", "thread_ts": "here", "status": "busy"}, "invalid_arguments"),
    ("agents.sessions.setStatus", {"channel_id": "C9", "thread_ts": "here", "status": "active"}, "channel_not_found"),
    ("agents.sessions.setStatus", {"channel_id": "C1OPS", "thread_ts": ROOT, "status": "active"}, "invalid_thread_ts"),
    ("api.test", {"error": "my_error"}, "my_error"),
    ("apps.connections.open", {"app_token": "xoxb-fake-bot"}, "not_allowed_token_type"),
    ("assistant.threads.setStatus", {"channel_id": "C1OPS", "thread_ts": ROOT, "status": "x"}, "invalid_thread_ts"),
    (
        "assistant.threads.setStatus",
        {"channel_id": "C1OPS", "thread_ts": "here", "status": "x", "loading_messages": ["a"] * 11},
        "invalid_arguments",
    ),
    (
        "assistant.threads.setSuggestedPrompts",
        {"channel_id": "C1OPS", "thread_ts": "here", "prompts": [{"title": "a", "message": "b"}] * 5},
        "invalid_arguments",
    ),
    ("assistant.threads.setTitle", {"channel_id": "C1OPS", "thread_ts": "here", "title": ""}, "invalid_arguments"),
    ("auth.revoke", {"token": "xoxb-other"}, "invalid_auth"),
    ("auth.test", {"token": "xoxb-other"}, "invalid_auth"),
    ("chat.appendStream", {"channel": "C1OPS", "ts": "here", "markdown_text": "x"}, "message_not_owned_by_app"),
    ("chat.appendStream", {"channel": "C1OPS", "ts": "ours", "markdown_text": "x"}, "message_not_in_streaming_state"),
    ("chat.delete", {"channel": "C1OPS", "ts": "here"}, "cant_delete_message"),
    ("chat.getPermalink", {"channel": "C1OPS", "message_ts": ROOT}, "message_not_found"),
    ("chat.postEphemeral", {"channel": "C1OPS", "user": "U9", "text": "x"}, "user_not_in_channel"),
    ("chat.postMessage", {"channel": "C9", "text": "x"}, "channel_not_found"),
    ("chat.postMessage", {"channel": "C2FAR", "text": "x"}, "not_in_channel"),
    ("chat.postMessage", {"channel": "C3OLD", "text": "x"}, "is_archived"),
    ("chat.postMessage", {"channel": "C1OPS"}, "no_text"),
    ("chat.postMessage", {"channel": "C1OPS", "text": "x", "thread_ts": ""}, "invalid_thread_ts"),
    ("chat.postMessage", {"channel": "C1OPS", "text": "x", "thread_ts": ROOT}, "cannot_reply_to_message"),
    ("chat.postMessage", {"channel": "C1OPS", "text": "x", "markdown_text": "x"}, "markdown_text_conflict"),
    ("chat.postMessage", {"channel": "C1OPS", "markdown_text": "x" * 12_001}, "msg_too_long"),
    ("chat.postMessage", {"channel": "C1OPS", "text": "x", "metadata": {"event_type": "a"}}, "invalid_metadata_schema"),
    (
        "chat.postMessage",
        {"channel": "C1OPS", "text": "x", "metadata": {"event_type": "a", "event_payload": {"k": "v" * 4100}}},
        "metadata_too_large",
    ),
    ("chat.startStream", {"channel": "C1OPS", "thread_ts": "here"}, "missing_recipient_user_id"),
    (
        "chat.startStream",
        {"channel": "C1OPS", "thread_ts": "here", "recipient_user_id": "U1ALICE"},
        "missing_recipient_team_id",
    ),
    ("chat.stopStream", {"channel": "C1OPS", "ts": "ours"}, "message_not_in_streaming_state"),
    ("chat.update", {"channel": "C1OPS", "ts": "here", "text": "x"}, "cant_update_message"),
    ("chat.update", {"channel": "C1OPS", "ts": "ours", "text": "ä" * 2001}, "msg_too_long"),
    ("conversations.history", {"channel": "C2FAR"}, "not_in_channel"),
    ("conversations.history", {"channel": "C1OPS", "cursor": "nonsense"}, "invalid_cursor"),
    ("conversations.info", {"channel": "C9"}, "channel_not_found"),
    ("conversations.join", {"channel": "D1ALICE"}, "method_not_supported_for_channel_type"),
    ("conversations.list", {"types": "secret_channel"}, "invalid_types"),
    ("conversations.members", {"channel": "C9"}, "channel_not_found"),
    ("conversations.open", {"users": "U9"}, "user_not_found"),
    ("conversations.replies", {"channel": "C1OPS", "ts": ROOT}, "thread_not_found"),
    ("files.completeUploadExternal", {"files": [{"id": "F9"}], "channel_id": "C1OPS"}, "file_not_found"),
    ("files.getUploadURLExternal", {"filename": "a.txt", "length": 0}, "invalid_arguments"),
    ("files.info", {"file": "F9"}, "file_not_found"),
    (
        "oauth.v2.access",
        {"client_id": "9", "client_secret": "x", "code": "x"},
        "invalid_client_id",
    ),
    ("reactions.add", {"channel": "C1OPS", "name": "eyes", "timestamp": ROOT}, "message_not_found"),
    ("reactions.add", {"channel": "C1OPS", "name": "no such", "timestamp": "here"}, "invalid_name"),
    ("reactions.remove", {"channel": "C1OPS", "name": "eyes", "timestamp": "here"}, "no_reaction"),
    ("users.info", {"user": "U9"}, "user_not_found"),
    ("users.list", {"cursor": "nonsense"}, "invalid_cursor"),
    ("views.open", {"view": {"type": "modal", "blocks": []}, "trigger_id": "1.1"}, "invalid_trigger_id"),
    ("views.push", {"view": {"type": "modal", "blocks": []}, "trigger_id": "1.1"}, "invalid_trigger_id"),
    ("views.publish", {"user_id": "U1ALICE", "view": {"type": "modal", "blocks": []}}, "invalid_arguments"),
    ("views.publish", {"user_id": "U9", "view": {"type": "home", "blocks": []}}, "user_not_found"),
    ("views.update", {"view": {"type": "modal", "blocks": []}, "view_id": "V9"}, "not_found"),
]


@pytest.mark.filterwarnings("ignore:The top-level", "ignore:BasicAuth is deprecated")
@pytest.mark.parametrize(("method", "arguments", "code"), REFUSALS)
async def test_what_slack_refuses_is_refused(
    server: SlackServer, client: AsyncWebClient, method: str, arguments: dict[str, Any], code: str
) -> None:
    server.add_channel("C2FAR", "far", bot_in=False)
    server.add_channel("C3OLD", "old")
    server.archive_channel("C3OLD")
    places = {"here": await server.say("root"), "ours": await server.bot_say(None, "ours")}
    filled = {key: places.get(value, value) if isinstance(value, str) else value for key, value in arguments.items()}
    assert await refusal(client, method, **filled) == code


def test_every_method_names_its_page_and_has_a_refusal() -> None:
    served = {name: getattr(SlackServer, name) for name in dir(SlackServer) if name.startswith("api_")}
    pages = {
        name: re.findall(r"reference/methods/([\w.]+)", function.__doc__ or "") for name, function in served.items()
    }
    assert [name for name, found in pages.items() if not found] == []
    named = {found[0] for found in pages.values()} | {"views.push"}
    assert named == {method for method, _, _ in REFUSALS}


@pytest.mark.parametrize(
    ("scopes", "method", "arguments", "needed"),
    [
        ((), "chat.postMessage", {"channel": "C1OPS", "text": "x"}, "chat:write"),
        (("chat:write",), "reactions.add", {"channel": "C1OPS", "name": "eyes", "timestamp": "1"}, "reactions:write"),
        (("chat:write",), "conversations.replies", {"channel": "D1ALICE", "ts": "1"}, "im:history"),
        (("chat:write",), "files.getUploadURLExternal", {"filename": "a", "length": 1}, "files:write"),
        (("chat:write",), "conversations.info", {"channel": "C1OPS"}, "channels:read"),
        (("channels:read",), "conversations.info", {"channel": "D1ALICE"}, "im:read"),
    ],
)
async def test_a_missing_scope_is_named(
    server: SlackServer,
    client: AsyncWebClient,
    scopes: tuple[str, ...],
    method: str,
    arguments: dict[str, Any],
    needed: str,
) -> None:
    server.scopes = scopes
    with pytest.raises(SlackApiError) as caught:
        await getattr(client, method.replace(".", "_"))(**arguments)
    assert (caught.value.response["error"], caught.value.response["needed"]) == ("missing_scope", needed)


async def test_threads_and_channels_are_read_page_by_page(server: SlackServer, client: AsyncWebClient) -> None:
    root = await server.say("root")
    for n in range(7):
        await server.say(f"reply {n}", thread_ts=root)
    found: list[str] = []
    async for page in await client.conversations_replies(channel="C1OPS", ts=root, limit=3):
        found += [m["text"] for m in page["messages"]]
    assert found == ["root", *(f"reply {n}" for n in range(7))]
    await server.say("newer root")
    newest = await client.conversations_history(channel="C1OPS", limit=1)
    assert [m["text"] for m in newest["messages"]] == ["newer root"]
    server.max_page = 2
    assert len((await client.conversations_replies(channel="C1OPS", ts=root, limit=200))["messages"]) == 2


async def test_an_update_without_blocks_takes_the_blocks_away(server: SlackServer, client: AsyncWebClient) -> None:
    divider = [{"type": "divider"}]
    posted = await client.chat_postMessage(channel="C1OPS", text="x", blocks=divider)
    await client.chat_update(channel="C1OPS", ts=posted["ts"], text="y")
    assert server.bot_messages("C1OPS")[0]["blocks"] == []


async def test_a_private_channel_is_shown_to_its_members_only(server: SlackServer, client: AsyncWebClient) -> None:
    server.add_channel("G1OURS", "ours", kind="group")
    server.add_channel("G2FAR", "far", kind="group", bot_in=False)
    assert (await client.conversations_info(channel="G1OURS"))["channel"]["is_private"]
    assert await refusal(client, "conversations.info", channel="G2FAR") == "channel_not_found"


async def test_a_direct_message_names_its_person_and_nobody_as_member(
    server: SlackServer, client: AsyncWebClient
) -> None:
    shown = (await client.conversations_info(channel="D1ALICE"))["channel"]
    assert (shown["is_im"], shown["user"], shown["is_user_deleted"]) == (True, "U1ALICE", False)
    assert not {"name", "is_member"} & set(shown)


async def test_faults_strike_by_rule(server: SlackServer, client: AsyncWebClient) -> None:
    server.inject("chat.postMessage", http=429, retry_after=7, channel="D1ALICE")
    server.inject("chat.postMessage", error="ratelimited", every=3, times=2, channel="C1OPS")
    server.inject("users.info", error="user_not_visible", args={"user": "U2BOB"})
    seen = [await refusal(client, "chat.postMessage", channel="C1OPS", text=str(n)) for n in range(9)]
    assert seen == ["ok", "ok", "ratelimited", "ok", "ok", "ratelimited", "ok", "ok", "ok"]
    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel="D1ALICE", text="x")
    assert (caught.value.response.status_code, caught.value.response.headers["Retry-After"]) == (429, "7")
    assert await refusal(client, "users.info", user="U1ALICE") == "ok"
    assert await refusal(client, "users.info", user="U2BOB") == "user_not_visible"


async def test_a_file_takes_the_three_steps_and_comes_back_with_the_token_only(
    server: SlackServer, client: AsyncWebClient
) -> None:
    root = await server.say("root")
    await client.files_upload_v2(channel="C1OPS", thread_ts=root, filename="a.csv", content="a,b", initial_comment="hi")
    (message,) = server.bot_messages("C1OPS", root)
    info = message["files"][0]
    assert (message["text"], info["name"]) == ("hi", "a.csv")
    assert client.session is not None
    bearer = {"Authorization": f"Bearer {server.bot_token}"}
    async with client.session.get(info["url_private"], headers=bearer) as answer:
        assert await answer.text() == "a,b"
    async with client.session.get(info["url_private"]) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    server.scopes = ("files:write",)
    async with client.session.get(info["url_private"], headers=bearer) as answer:
        assert answer.content_type == "text/html"
    server.redirect_file(info["id"], "http://127.0.0.1:9/secret")
    async with client.session.get(info["url_private"], headers=bearer, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "http://127.0.0.1:9/secret")


async def test_a_markdown_block_beside_a_file_fails_inside_slack(server: SlackServer, client: AsyncWebClient) -> None:
    ticket = await client.files_getUploadURLExternal(filename="a.txt", length=1)
    block = {"type": "markdown", "text": "x"}
    call = {"files": [{"id": ticket["file_id"]}], "channel_id": "C1OPS", "blocks": [block]}
    with pytest.raises(SlackApiError, match="internal_error"):
        await client.api_call("files.completeUploadExternal", json=call)


async def test_the_home_tab_shows_what_was_published(server: SlackServer, client: AsyncWebClient) -> None:
    view = {"type": "home", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "hello"}}]}
    first = await client.views_publish(user_id="U1ALICE", view=view)
    assert server.home_view("U1ALICE")["blocks"] == view["blocks"]
    assert await refusal(client, "views.publish", user_id="U1ALICE", view=view, hash="old") == "hash_conflict"
    await client.views_publish(user_id="U1ALICE", view=view, hash=first["view"]["hash"])


async def test_a_response_address_serves_five_times_within_half_an_hour(server: SlackServer) -> None:
    from slack_sdk.webhook.async_client import AsyncWebhookClient

    server.request_url = f"{server.origin}/nothing"
    out = await server.slash("/hermod")
    hook = AsyncWebhookClient(out.response_url)
    assert [(await hook.send(text="x")).status_code for _ in range(6)] == [200] * 5 + [404]
    late = await server.slash("/hermod")
    server.fast_forward(1801)
    assert (await AsyncWebhookClient(late.response_url).send(text="x")).body == '{"ok": false, "error": "expired_url"}'


async def test_a_strict_workspace_enforces_what_it_publishes(server: SlackServer, client: AsyncWebClient) -> None:
    server.strict_rate_limits = True
    root = await server.say("root")
    names = [await refusal(client, "reactions.add", channel="C1OPS", name=f"s{n}", timestamp=root) for n in range(51)]
    assert names == ["ok"] * 50 + ["ratelimited"]
    server.fast_forward(60)
    assert await refusal(client, "reactions.add", channel="C1OPS", name="eyes", timestamp=root) == "ok"
