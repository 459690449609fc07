"""Slack over HTTP: what is signed, what is refused, and what is asked for again."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from adapters.chat import AdapterNotConfigured
from adapters.slack.app import SlackAdapter
from tests.integration.slack.conftest import (
    Inbox,
    build_adapter,
    reachable,
    running,
    wait_connected,
)
from tests.servers.slack import Copies, SlackServer

EVENT: dict[str, Any] = {
    "type": "app_mention",
    "user": "U1ALICE",
    "text": "<@U0BOT> hi",
    "channel": "C1OPS",
    "ts": "1700000000.000100",
}


@pytest.fixture
def mode() -> str:
    return "http"


@pytest.mark.parametrize(
    ("forged", "status"),
    [
        pytest.param({}, 200, id="as Slack signs it"),
        pytest.param({"age_s": 290.0}, 200, id="almost five minutes old"),
        pytest.param({"age_s": 310.0}, 401, id="too old"),
        pytest.param({"age_s": -310.0}, 401, id="from the future"),
        pytest.param({"secret": "another"}, 401, id="signed by somebody else"),
        pytest.param({"tamper": True}, 401, id="changed on the way"),
        pytest.param({"without": ("X-Slack-Signature",)}, 401, id="no signature"),
        pytest.param({"without": ("X-Slack-Request-Timestamp",)}, 401, id="no time"),
        pytest.param({"X_Slack_Request_Timestamp": "soon"}, 401, id="a time that is none"),
        pytest.param({"X_Slack_Signature": "v0=äöü"}, 401, id="a signature that is none"),
    ],
)
async def test_only_what_slack_signed_lately_is_taken(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter, forged: dict[str, Any], status: int
) -> None:
    assert await server.forge(EVENT, **forged) == status
    assert len(inbox.messages) == (status == 200)


async def test_a_signature_of_nothing_is_refused_where_no_secret_is_set(server: SlackServer, inbox: Inbox) -> None:
    adapter = build_adapter(server, mode="http", signing_secret=" ")
    with pytest.raises(AdapterNotConfigured, match="signing_secret is missing"):
        await adapter.start(inbox.accept)
    async with reachable(adapter, server):
        assert await server.forge(EVENT, secret=" ") == 401
    assert not adapter.connected
    assert any("signing_secret" in p.what for p in await adapter.check())
    await adapter.stop()


async def test_the_address_is_confirmed_before_the_app_is_even_installed(server: SlackServer) -> None:
    server.inject("auth.test", error="invalid_auth", times=99)
    adapter = build_adapter(server, mode="http")
    async with reachable(adapter, server):
        assert await server.verify_url()
    await adapter.stop()


async def test_b016_nothing_is_taken_before_our_own_identity_is_known(server: SlackServer, inbox: Inbox) -> None:
    server.inject("auth.test", http=500)
    adapter = build_adapter(server, mode="http")
    async with reachable(adapter, server):
        assert await server.forge(EVENT) == 503  # not even started
        await adapter.start(inbox.accept)
        assert not adapter.connected
        assert await server.forge(EVENT) == 503
        await wait_connected(adapter)  # tried again by itself
        assert await server.forge(EVENT) == 200
        await adapter.stop()
        assert not adapter.connected
        assert await server.forge(EVENT) == 503
    assert len(inbox.messages) == 1


async def test_what_comes_while_it_winds_down_is_to_be_delivered_again(server: SlackServer, inbox: Inbox) -> None:
    async with running(server, inbox, mode="http") as adapter:
        assert await server.forge(EVENT) == 200
        await adapter.wind_down()
        assert not adapter.connected
        assert await server.forge(EVENT | {"ts": "1700000000.000200"}) == 503
    assert len(inbox.messages) == 1


async def test_it_is_connected_only_while_its_routes_are_mounted(server: SlackServer, inbox: Inbox) -> None:
    adapter = build_adapter(server, mode="http")
    await adapter.start(inbox.accept)
    seen = [adapter.connected]
    async with reachable(adapter, server):
        seen.append(adapter.connected)
    await adapter.stop()
    assert seen == [False, True]


async def test_neither_an_app_token_nor_a_websocket_is_needed(server: SlackServer, inbox: Inbox) -> None:
    adapter = SlackAdapter(server.bot_token, api_url=server.base_url, mode="http", signing_secret=server.signing_secret)
    async with reachable(adapter, server):
        await adapter.start(inbox.accept)
        await server.mention("hi", copies=Copies(mention=0))
        await inbox.wait_for(lambda: inbox.messages)
        assert await adapter.check() == ()
        await adapter.stop()
    assert server.calls_to("apps.connections.open") == []


async def test_socket_mode_has_no_routes(server: SlackServer) -> None:
    adapter = build_adapter(server)
    assert list(adapter.build_routes()) == []
    await adapter.stop()


async def test_b012_a_redelivery_that_is_the_first_we_see_is_answered(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    assert await server.forge(EVENT, X_Slack_Retry_Num="1", X_Slack_Retry_Reason="connection_failed") == 200
    assert [m.id for m in inbox.messages] == [EVENT["ts"]]


async def test_what_is_being_stored_at_stop_is_still_answered(server: SlackServer, inbox: Inbox) -> None:
    async with running(server, inbox, mode="http") as adapter:
        inbox.gate.clear()
        asking = asyncio.create_task(server.forge(EVENT))
        await server.wait_until(lambda: server.calls_to("users.info"))
        stopping = asyncio.create_task(adapter.stop())
        for _ in range(50):  # let it come as far as it can
            await asyncio.sleep(0)
        assert not stopping.done()
        inbox.gate.set()
        await stopping
        assert await asking == 200
    assert len(inbox.messages) == 1


async def _post(url: str, body: bytes, server: SlackServer, content_type: str = "application/json") -> int:
    headers = {"Content-Type": content_type, **server.sign(body)}
    async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as response:
        return response.status


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"not json", "application/json"),
        (b"[1, 2]", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"payload=%7Bnot+json", "application/x-www-form-urlencoded"),
        (b"payload=5", "application/x-www-form-urlencoded"),
        (b"&".join(b"a%d=1" % n for n in range(1000)), "application/x-www-form-urlencoded"),
        (b"ssl_check=1&token=x", "application/x-www-form-urlencoded"),
    ],
)
async def test_what_is_signed_but_cannot_be_read_is_acknowledged_and_ignored(
    server: SlackServer, inbox: Inbox, body: bytes, content_type: str
) -> None:
    adapter = build_adapter(server, mode="http")
    async with reachable(adapter, server) as url:
        await adapter.start(inbox.accept)
        assert await _post(url, body, server, content_type) == 200
        await adapter.stop()
    assert inbox.items == []


async def test_a_request_that_is_too_large_is_refused_whether_it_says_so_or_not(
    server: SlackServer, inbox: Inbox
) -> None:
    adapter = build_adapter(server, mode="http")

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(300):
            yield b" " * 4096

    async with reachable(adapter, server) as url:
        await adapter.start(inbox.accept)
        async with aiohttp.ClientSession() as http:
            for headers in ({"Content-Length": str(300 * 4096)}, {}):
                try:
                    async with http.post(url, data=drip(), headers=headers) as response:
                        assert response.status == 413
                except aiohttp.ClientError:
                    pass  # refused while it was still being sent
        assert await _post(url, b"{}", server) == 200
        await adapter.stop()


async def test_a_request_that_never_ends_is_ended(
    server: SlackServer, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.slack.http.READ_S", 0.05)
    adapter = build_adapter(server, mode="http")
    never = asyncio.Event()

    async def begin() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with reachable(adapter, server) as url:
        await adapter.start(inbox.accept)
        async with aiohttp.ClientSession() as http, http.post(url, data=begin()) as response:
            assert response.status == 408
        await adapter.stop()


async def test_a_signature_holds_for_the_raw_bytes_whatever_they_are(server: SlackServer, inbox: Inbox) -> None:
    adapter = build_adapter(server, mode="http")
    body = b'{ "type":"event_callback",\n "event": {"type": "x", "text": "\\u00e4 \xc3\xa4"} }\r\n'
    stamp = str(int(time.time()))
    mac = hmac.new(server.signing_secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256)
    headers = {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={mac.hexdigest()}"}
    async with reachable(adapter, server) as url:
        await adapter.start(inbox.accept)
        async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as response:
            assert response.status == 200
        await adapter.stop()


async def test_an_event_that_could_not_be_stored_is_delivered_again(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    inbox.failures = 1
    await server.mention("hello", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)
    await server.wait_until(lambda: len(server.deliveries) == 2 and server.deliveries[-1].acked)
    assert [(d.status, d.attempt) for d in server.deliveries] == [(503, 0), (200, 1)]
