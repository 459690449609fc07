"""Several websockets at once: no gap, no loss, no storm, and one order."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from structlog.testing import capture_logs

from adapters.slack.app import SlackAdapter
from tests.integration.slack.conftest import (
    Inbox,
    all_acknowledged,
    both_open,
    build_adapter,
    running,
    wait_connected,
)
from tests.servers.slack import Copies, SlackServer

ONCE = Copies(mention=0)


class Pauses:
    """A clock whose waits are short, and known afterwards."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))


def opened(server: SlackServer) -> int:
    return len(server.calls_to("apps.connections.open"))


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_a_connection_that_is_to_go_serves_until_another_one_does(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter, reason: str
) -> None:
    await both_open(server)
    old = set(server.open_sockets)
    await server.disconnect(reason, which=0, close=False)
    await both_open(server, 3)  # the new one is open, and the old one is not closed
    for n in range(6):
        await server.mention(f"{n}", copies=ONCE)
    await all_acknowledged(server, 6)
    assert {d.socket for d in server.deliveries} == set(server.open_sockets) > old
    await server.disconnect(reason, which=0, grace=0.0)
    await both_open(server, 2)
    assert adapter.connected
    await server.mention("6", copies=ONCE)
    await all_acknowledged(server, 7)
    assert sorted(m.text for m in inbox.messages) == [str(n) for n in range(7)]
    assert opened(server) == 3
    assert server.violations == []


async def test_while_both_are_replaced_it_never_stops_being_connected(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    await both_open(server)
    await server.disconnect("warning", close=False)
    seen = []
    async with asyncio.timeout(30):
        while len(server.open_sockets) < 4:
            seen.append(adapter.connected)
            await asyncio.sleep(0)
    assert all(seen)


async def test_one_connection_is_replaced_without_a_gap_too(server: SlackServer, inbox: Inbox) -> None:
    async with running(server, inbox, connections=1):
        await server.disconnect("warning", close=False)
        await both_open(server, 2)
        for n in range(4):
            await server.mention(f"{n}", copies=ONCE)
        await all_acknowledged(server, 4)
        assert len(inbox.messages) == 4


async def test_b075_a_connection_on_which_nothing_comes_any_more_is_replaced(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    await both_open(server)
    dead = set(server.open_sockets)
    server.silence()  # TCP stays, nothing answers
    await server.wait_until(lambda: len(server.open_sockets) == 2 and not dead & set(server.open_sockets))
    await wait_connected(adapter)
    await server.mention("still there?", copies=ONCE)
    await all_acknowledged(server, 1)


async def test_b075_a_connection_that_only_answers_our_pings_is_replaced_without_a_gap(
    server: SlackServer, inbox: Inbox
) -> None:
    async with running(server, inbox, quiet_s=0.3, ping_interval_s=0.05) as adapter:
        await both_open(server)
        dead = set(server.open_sockets)
        server.silence(pongs=True)
        while dead & set(server.open_sockets[:2]) and opened(server) < 4:
            assert adapter.connected
            await asyncio.sleep(0.01)
        assert adapter.connected


async def test_b076_a_crowd_of_websockets_is_met_with_patience_and_one_line(server: SlackServer, inbox: Inbox) -> None:
    server.refuse_sockets(5)
    pauses = Pauses()
    with capture_logs() as logs:
        adapter = build_adapter(server, connections=1, sleep=pauses.sleep)
        await adapter.start(inbox.accept)
        assert not adapter.connected
        await wait_connected(adapter)
    await adapter.stop()
    assert [w for w in pauses.waits if w >= 10.0] == [10.0, 20.0, 40.0, 80.0, 160.0]
    assert opened(server) == 6
    assert len([line for line in logs if line["log_level"] == "error"]) == 1
    assert any(line["event"] == "slack_has_too_many_sockets" for line in logs)


async def test_b076_a_crowd_that_ends_a_connection_is_met_with_patience(server: SlackServer, inbox: Inbox) -> None:
    pauses = Pauses()
    async with running(server, inbox, connections=1, sleep=pauses.sleep) as adapter:
        await server.disconnect("too_many_websockets", grace=0.0)
        await server.wait_until(lambda: opened(server) == 2)
        await wait_connected(adapter)
    assert 10.0 in pauses.waits


async def test_connections_that_do_not_last_are_not_opened_in_a_storm(server: SlackServer, inbox: Inbox) -> None:
    pauses = Pauses()
    async with running(server, inbox, connections=1, sleep=pauses.sleep, retry_s=1.0):
        for n in range(5):
            await server.wait_until(lambda n=n: opened(server) == n + 1 and server.open_sockets)  # type: ignore[misc]
            await server.disconnect("refresh_requested", grace=0.0)
        await server.wait_until(lambda: opened(server) == 6)
    assert [w for w in pauses.waits if w >= 1.0] == [1.0, 2.0, 4.0, 8.0, 16.0]


async def test_b077_another_process_with_our_token_is_told_of_and_our_own_connections_are_not(
    server: SlackServer, inbox: Inbox
) -> None:
    with capture_logs() as logs:
        async with running(server, inbox):
            await both_open(server)
            await server.disconnect("warning", which=0, close=False)
            await both_open(server, 3)
            await server.kill_sockets()
            await both_open(server)
        assert not any(line["event"] == "slack_socket_is_shared" for line in logs)
        server._tickets.add("theirs")
        theirs = f"{server.origin}/link?ticket=theirs"
        async with aiohttp.ClientSession() as http, http.ws_connect(theirs), running(server, inbox):
            await both_open(server, 3)
    told = [line for line in logs if line["event"] == "slack_socket_is_shared"]
    assert {line["connections"] for line in told} <= {2, 3}
    assert told


async def test_what_was_received_is_acknowledged_on_another_connection_when_its_own_broke(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    await both_open(server)
    inbox.gate.clear()
    await server.mention("hello", copies=ONCE)
    await server.wait_until(lambda: server.calls_to("users.info"))
    broken = server.deliveries[0].socket
    await server.kill_sockets(which=server.open_sockets.index(broken))
    await server.wait_until(lambda: broken not in server.open_sockets)
    inbox.gate.set()
    await all_acknowledged(server, 1)
    assert [d.attempt for d in server.deliveries] == [0]
    assert server.violations == []


async def test_the_messages_of_one_thread_keep_their_order_over_two_connections(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    await both_open(server)
    root = await server.mention("0", copies=ONCE)
    for n in range(1, 60):
        await server.say(f"{n}", thread_ts=root, user=("U1ALICE", "U2BOB")[n % 2])
    await all_acknowledged(server, 60)
    assert len({d.socket for d in server.deliveries}) == 2
    assert [m.text for m in inbox.messages] == [str(n) for n in range(60)]


async def test_a_thread_that_waits_holds_up_no_other(server: SlackServer, inbox: Inbox, adapter: SlackAdapter) -> None:
    server.add_user("U3SLOW", "slow")
    hold = asyncio.Event()
    server.inject("users.info", hold=hold)
    await server.mention("waits for a name", user="U3SLOW", copies=ONCE)
    while not server.calls_to("users.info"):  # noqa: ASYNC110 - the server tells only what it has answered
        await asyncio.sleep(0)
    await server.mention("does not wait", copies=ONCE)
    await inbox.wait_for(lambda: inbox.messages)
    hold.set()
    await inbox.wait_for(lambda: len(inbox.messages) == 2)
    assert [m.text for m in inbox.messages] == ["does not wait", "waits for a name"]


async def test_slacks_wish_to_wait_is_kept_to_at_the_start(server: SlackServer, inbox: Inbox) -> None:
    server.inject("apps.connections.open", http=429, retry_after=1)
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    assert not adapter.connected
    await wait_connected(adapter)
    await adapter.stop()
    refused, taken = server.calls_to("apps.connections.open")[:2]
    assert taken.at - refused.at >= 1.0


async def test_what_came_just_before_the_stop_is_stored_and_acknowledged(server: SlackServer, inbox: Inbox) -> None:
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    with capture_logs() as logs:
        for n in range(5):
            await server.mention(f"{n}", copies=ONCE)
        while adapter.state.last_event_at is None:  # noqa: ASYNC110 - received, and not handed over yet
            await asyncio.sleep(0)
        await adapter.stop()
        taken = len(inbox.messages)
        await server.wait_until(lambda: sum(d.acked for d in server.deliveries) == taken)
    assert taken
    assert [line for line in logs if line["log_level"] in ("warning", "error")] == []
