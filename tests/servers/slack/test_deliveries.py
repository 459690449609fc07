"""Deliveries to Bolt over HTTP, and to Slack's Socket Mode client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.servers.slack import SlackServer


class Listener:
    """A Bolt app on a port of its own, which notes what it hears."""

    def __init__(self, server: SlackServer) -> None:
        self.seen: list[tuple[str, str, str]] = []  # event id, retry number, retry reason
        self.status = 200
        self.gate = asyncio.Event()
        self.gate.set()
        app = AsyncApp(
            signing_secret=server.signing_secret,
            client=AsyncWebClient(token=server.bot_token, base_url=server.base_url),
            process_before_response=True,
        )
        app.event("app_mention")(self._hear)
        app.event("message")(self._ignore)
        app.command("/hermod")(self._command)
        self.web = app.web_app(path="/slack/events")
        self.web.middlewares.append(self._fail)

    @web.middleware
    async def _fail(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.status != 200:
            return web.Response(status=self.status, headers={"X-Slack-No-Retry": "1"} if self.status == 400 else {})
        return await handler(request)  # type: ignore[no-any-return]

    async def _hear(self, body: dict[str, Any], request: Any) -> None:
        await self.gate.wait()
        retry = request.headers.get("x-slack-retry-num", ["0"])[0], request.headers.get("x-slack-retry-reason", [""])[0]
        self.seen.append((body["event_id"], *retry))

    async def _ignore(self) -> None: ...

    async def _command(self, ack: AsyncAck, body: dict[str, Any]) -> None:
        await ack(text=f"got {body['text']}")


@asynccontextmanager
async def listening(server: SlackServer) -> AsyncIterator[Listener]:
    listener = Listener(server)
    runner = web.AppRunner(listener.web, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.request_url = f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events"
    yield listener
    await runner.cleanup()


async def test_the_request_url_is_verified_and_signed_requests_are_taken(server: SlackServer) -> None:
    async with listening(server) as app:
        assert await server.verify_url()
        await server.mention("hello")
        await server.wait_until(lambda: len(server.deliveries) == 3 and all(d.acked for d in server.deliveries))
        assert len(app.seen) == 1
        assert (await server.slash("/hermod", "x")).ack == {"text": "got x"}


@pytest.mark.parametrize(
    "forgery",
    [
        {"secret": "another"},
        {"age_s": 301.0},
        {"age_s": -301.0},
        {"tamper": True},
        {"without": ("X-Slack-Signature",)},
        {"without": ("X-Slack-Request-Timestamp",)},
        {"X_Slack_Signature": "v0=00"},
    ],
)
async def test_bolt_refuses_each_forgery(server: SlackServer, forgery: dict[str, Any]) -> None:
    event = {"type": "app_mention", "user": "U1ALICE", "text": "x", "channel": "C1OPS", "ts": "1.1", "event_ts": "1.1"}
    async with listening(server) as app:
        assert await server.forge(event) == 200
        assert await server.forge(event, **forgery) == 401
        assert len(app.seen) == 1


async def test_a_failed_request_comes_again_at_once_after_a_minute_and_after_five(server: SlackServer) -> None:
    server.copies = type(server.copies)(message=0)
    async with listening(server) as app:
        app.status = 500
        await server.mention("hello")
        await server.wait_until(lambda: len([d for d in server.deliveries if d.error]) == 2)
        server.fast_forward(60)
        await server.wait_until(lambda: len([d for d in server.deliveries if d.error]) == 3)
        app.status = 200
        server.fast_forward(300)
        await server.wait_until(lambda: server.deliveries[-1].acked)
        assert [(d.attempt, d.reason) for d in server.deliveries] == [
            (0, ""),
            (1, "http_error"),
            (2, "http_error"),
            (3, "http_error"),
        ]
        assert app.seen == [(server.deliveries[0].body["event_id"], "3", "http_error")]


async def test_a_slow_answer_is_a_timeout_and_no_retry_ends_the_tries(server: SlackServer) -> None:
    server.copies = type(server.copies)(message=0)
    server.ack_timeout = 0.1
    async with listening(server) as app:
        app.gate.clear()
        await server.mention("hello")
        await server.wait_until(lambda: len(server.deliveries) == 2)
        assert server.deliveries[1].reason == "http_timeout"
        app.gate.set()
        await server.wait_until(lambda: server.deliveries[1].acked)
        app.status = 400
        server.ack_timeout = 3.0
        await server.mention("again")
        await server.wait_until(lambda: server.deliveries[-1].error)
        assert [d.error for d in server.deliveries[2:]] == ["no_retry"]


class Socket:
    """Slack's Socket Mode client; it acknowledges what it hears unless told not to."""

    def __init__(self, server: SlackServer) -> None:
        self.heard: list[SocketModeRequest] = []
        self.hellos: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()
        web_client = AsyncWebClient(base_url=server.base_url)
        self.client = SocketModeClient(app_token=server.app_token, web_client=web_client, ping_interval=0.1)
        self.client.socket_mode_request_listeners.append(self._hear)
        self.client.message_listeners.append(self._frame)

    async def _hear(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        self.heard.append(request)
        await client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        async with self._changed:
            self._changed.notify_all()

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(predicate)

    async def _frame(self, client: AsyncBaseSocketModeClient, message: dict[str, Any], raw: str | None) -> None:
        if message.get("type") == "hello":
            self.hellos.append(message)
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def sockets(server: SlackServer, count: int) -> AsyncIterator[list[Socket]]:
    opened = [Socket(server) for _ in range(count)]
    for one in opened:
        await one.client.connect()  # type: ignore[no-untyped-call]
    await server.wait_connected(sockets=count)
    yield opened
    for one in opened:
        await one.client.close()  # type: ignore[no-untyped-call]


async def test_two_connections_share_the_events(server: SlackServer) -> None:
    async with sockets(server, 2) as (one, two):
        for n in range(4):
            await server.mention(f"m{n}")
        await server.wait_until(lambda: len(server.deliveries) == 8 and all(d.acked for d in server.deliveries))
        assert (len(one.heard), len(two.heard)) == (4, 4)
        ids = [d.body["event_id"] for d in server.deliveries]
        assert len(set(ids)) == 8
        assert [h["num_connections"] for h in (*one.hellos, *two.hellos)] == [1, 2]


async def test_a_lost_acknowledgement_brings_the_event_again(server: SlackServer) -> None:
    server.drop_ack("app_mention", 2)
    server.retry_delays = (0.0, 0.0)
    async with sockets(server, 1) as (one,):
        await server.mention("hello", copies={"message": 0})
        await server.wait_until(lambda: len(server.deliveries) == 3 and server.deliveries[-1].acked)
        assert [(r.retry_attempt, r.retry_reason) for r in one.heard] == [(0, ""), (1, "timeout"), (2, "timeout")]


async def test_a_connection_can_be_warned_refreshed_and_refused(server: SlackServer) -> None:
    async with sockets(server, 1) as (one,):
        await server.disconnect("warning", close=False)
        await one.wait_for(lambda: len(one.hellos) == 2)  # Slack's client moves on at any such frame
        server.refuse_sockets(1)
        await server.disconnect("refresh_requested", grace=0.0)
        await one.wait_for(lambda: len(one.hellos) == 3)
        assert len(server.calls_to("apps.connections.open")) == 4
        await server.kill_sockets()
        await one.wait_for(lambda: len(one.hellos) == 4)


async def test_a_silent_connection_stays_open_and_swallows_events(server: SlackServer) -> None:
    server.ack_timeout, server.retry_delays = 0.1, (0.0,) * 9
    async with sockets(server, 2) as (one, two):
        server.silence(0, pongs=True)
        for _ in range(2):
            await server.mention("hello", copies={"message": 0})
        await two.wait_for(lambda: len(two.heard) >= 2)
        assert one.heard == []
        assert len(server.open_sockets) == 2
        assert {d.error for d in server.deliveries} >= {"timeout"}


async def test_one_connection_too_many_is_refused_without_a_hello(server: SlackServer) -> None:
    server.max_sockets = 1
    async with sockets(server, 1), aiohttp.ClientSession() as session:
        url = (await AsyncWebClient(base_url=server.base_url).apps_connections_open(app_token=server.app_token))["url"]
        async with session.ws_connect(url) as second:
            assert (await second.receive_json(timeout=30))["reason"] == "too_many_websockets"
            await second.receive(timeout=30)
            assert second.closed
        assert len(server.open_sockets) == 1


async def test_shared_channels_and_organisations_show_whose_event_it_is(server: SlackServer) -> None:
    server.home.enterprise_id = "E1ORG"
    server.add_user("U9EVE", "eve", team_id="T9OTHER")
    server.add_channel("C8SHARED", "shared", members=["U1ALICE", "U9EVE"], shared_with="T9OTHER")
    async with sockets(server, 1) as (one,):
        await server.mention("hello", channel="C8SHARED", user="U9EVE", copies={"message": 0})
        await one.wait_for(lambda: bool(one.heard))
    body = one.heard[0].payload
    assert (body["team_id"], body["context_team_id"], body["enterprise_id"]) == ("T9OTHER", "T0FAKE", "E1ORG")
    assert (body["authorizations"][0]["team_id"], body["is_ext_shared_channel"]) == ("T0FAKE", True)
    assert (body["event"]["user_team"], body["event"]["team"]) == ("T9OTHER", "T0FAKE")


async def test_edits_deletions_unfurls_and_bots_look_as_documented(server: SlackServer) -> None:
    async with sockets(server, 1) as (one,):
        root = await server.say("help")
        await server.edit(root, f"help <@{server.bot_user}>", mention=True)
        await server.unfurl(root, [{"is_msg_unfurl": True, "text": "quoted"}])
        await server.say("both", thread_ts=root, broadcast=True)
        await server.other_bot_says("", attachments=[{"title": "disk full"}])
        await server.tell_replied(root)
        await server.delete(root)
        await server.open_home(tab="messages")
        await one.wait_for(lambda: len(one.heard) == 9)
    events = [r.payload["event"] for r in one.heard]
    kinds = sorted((e["type"], e.get("subtype", "")) for e in events)
    assert kinds == [
        ("app_home_opened", ""),
        ("app_mention", ""),
        ("message", ""),
        ("message", ""),
        ("message", "bot_message"),
        ("message", "message_changed"),
        ("message", "message_changed"),
        ("message", "message_deleted"),
        ("message", "thread_broadcast"),
    ]
    (unfurled,) = [e for e in events if e.get("message", {}).get("attachments") and e.get("subtype")]
    assert unfurled["message"]["text"] == unfurled["previous_message"]["text"]
    assert "user" not in unfurled
    (again,) = [e for e in events if e["type"] == "app_mention"]
    assert again["edited"]["user"] == "U1ALICE"
