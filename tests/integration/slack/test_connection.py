from __future__ import annotations

import asyncio
import gc
import warnings
from functools import partial

import pytest

from adapters.chat import AdapterNotConfigured, Reply, ThreadRef
from adapters.slack.app import SlackAdapter
from adapters.slack.client import SlackClient
from tests.integration.slack.conftest import Inbox, all_acknowledged, both_open, build_adapter, wait_connected
from tests.servers.slack import Copies, SlackServer


def opened_at_least(server: SlackServer, count: int) -> bool:
    return len(server.calls_to("apps.connections.open")) >= count


async def test_it_is_connected_from_start_to_stop(server: SlackServer, inbox: Inbox) -> None:
    adapter = build_adapter(server)
    seen = [adapter.connected]
    await adapter.start(inbox.accept)
    seen.append(adapter.connected)
    assert adapter.state.since is not None
    await adapter.stop()
    seen.append(adapter.connected)
    assert seen == [False, True, False]
    await adapter.stop()


async def test_stop_leaves_no_task_and_no_open_session(server: SlackServer, inbox: Inbox) -> None:
    before = asyncio.all_tasks()
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    root = await server.mention("hello")
    await inbox.wait_for(lambda: len(inbox.messages) == 2)
    await adapter.post(
        Reply(thread=ThreadRef(platform="slack", workspace="T0FAKE", channel="C1OPS", thread=root), text="x", key="k")
    )
    await all_acknowledged(server, 3)  # both twins and the echo of our post
    await both_open(server)
    await server.disconnect("warning", close=False)  # stops while old connections serve beside the new ones
    await server.wait_until(lambda: len(server.open_sockets) == 4)
    await adapter.stop()
    left = [t for t in asyncio.all_tasks() - before if not t.done()]
    servers = ("RequestHandler.", "Deliveries.", "SlackServer.")  # of the workspace, not ours
    assert [t for t in left if not str(getattr(t.get_coro(), "__qualname__", "")).startswith(servers)] == []
    del adapter
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect()


async def test_connections_that_a_call_opens_during_a_close_are_closed_by_the_next_one(server: SlackServer) -> None:
    """A status that was set at that moment kept its connection, and the end of the process told so in an error."""
    client = SlackClient(bot_token=server.bot_token, app_token=server.app_token, api_url=server.base_url)
    await client.identify()
    first, closing = client.session, asyncio.create_task(client.close())
    while not first.closed:  # noqa: ASYNC110 - until the close is under way
        await asyncio.sleep(0)
    second = client.session
    await asyncio.gather(closing, client.identify())
    await client.close()
    assert second.closed
    gc.collect()  # what nobody closed fails the test now


async def test_what_is_being_stored_at_stop_is_still_acknowledged(server: SlackServer, inbox: Inbox) -> None:
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    inbox.gate.clear()
    await server.mention("hello", copies=Copies(mention=0))
    await server.wait_until(lambda: server.calls_to("users.info"))
    await server.emit({"type": "reaction_added"})
    await server.wait_until(lambda: server.deliveries[-1].acked)
    stopping = asyncio.create_task(adapter.stop())
    for _ in range(50):  # let it come as far as it can
        await asyncio.sleep(0)
    assert not stopping.done()
    inbox.gate.set()
    await stopping
    await all_acknowledged(server, 2)


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "link_disabled", "some_reason_of_next_year"])
async def test_a_disconnect_of_every_connection_is_followed_by_new_ones(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter, reason: str
) -> None:
    await both_open(server)
    await server.disconnect(reason, grace=0.0)
    await server.wait_until(lambda: opened_at_least(server, 4) and len(server.open_sockets) == 2)
    await wait_connected(adapter)
    await server.mention("still there?", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)
    await all_acknowledged(server, 1)
    assert len(inbox.messages) == 1


async def test_b005_after_three_reconnects_an_event_is_still_handled_once(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    for n in range(3):
        await both_open(server)
        await server.disconnect(grace=0.0)
        await server.wait_until(partial(opened_at_least, server, 4 + 2 * n))
    await both_open(server)
    await server.mention("once", copies=Copies(mention=0))
    await all_acknowledged(server, 1)
    assert len(inbox.messages) == 1


async def test_a_broken_network_is_noticed_and_mended(server: SlackServer, inbox: Inbox, adapter: SlackAdapter) -> None:
    await both_open(server)
    await server.kill_sockets()
    await server.wait_until(lambda: opened_at_least(server, 4) and len(server.open_sockets) == 2)
    await wait_connected(adapter)
    await server.mention("still there?", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)


async def test_b074_failures_while_connecting_again_do_not_end_it(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    await both_open(server)
    server.inject("apps.connections.open", http=500, times=3)
    await server.disconnect("refresh_requested", grace=0.0)
    await server.wait_until(lambda: len(server.calls_to("apps.connections.open")) >= 7)
    await both_open(server)
    await server.mention("still there?", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)


async def test_an_address_that_stopped_working_is_replaced(
    server: SlackServer, inbox: Inbox, adapter: SlackAdapter
) -> None:
    """Slack's client would try the same used-up address for ever."""
    await both_open(server)
    handed_out = server._tickets
    server._tickets = _Forgetful()
    await server.disconnect("refresh_requested", grace=0.0)
    await server.wait_until(lambda: len(server.calls_to("apps.connections.open")) >= 4)
    assert not adapter.connected
    server._tickets = handed_out
    await wait_connected(adapter)
    await server.mention("still there?", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)


class _Forgetful(set[str]):
    """Tickets that are never valid."""

    def __contains__(self, ticket: object) -> bool:
        return False


async def test_a_start_that_is_broken_off_leaves_nothing_open(server: SlackServer, inbox: Inbox) -> None:
    server.inject("apps.connections.open", delay=5.0)
    adapter = build_adapter(server)
    before = asyncio.all_tasks()
    starting = asyncio.create_task(adapter.start(inbox.accept))
    await server.wait_until(lambda: server.calls_to("auth.test"))
    while not server.calls_to("apps.connections.open"):  # noqa: ASYNC110 - the server tells only what it has answered
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    await adapter.stop()
    assert [t for t in asyncio.all_tasks() - before if t.get_name().startswith("slack-")] == []


# -- the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bot", "app", "said"),
    [
        ("", "xapp-1", "bot_token is missing"),
        ("xoxb-wrong", "xapp-1", "bot_token was not accepted"),
        ("right", "", "app_token is missing"),
        ("right", "xapp-wrong", "app_token was not accepted"),
    ],
)
async def test_a_missing_or_refused_token_stops_the_start(
    server: SlackServer, inbox: Inbox, bot: str, app: str, said: str
) -> None:
    adapter = SlackAdapter(server.bot_token if bot == "right" else bot, app, server.base_url)
    with pytest.raises(AdapterNotConfigured, match=said) as failure:
        await adapter.start(inbox.accept)
    assert "wrong" not in str(failure.value)
    assert not adapter.connected
    await adapter.stop()


async def test_b016_nothing_is_accepted_before_our_own_identity_is_known(server: SlackServer, inbox: Inbox) -> None:
    server.inject("auth.test", http=500)
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    assert not adapter.connected
    assert server.calls_to("apps.connections.open") == []
    await wait_connected(adapter)  # tried again by itself
    await server.mention("hello", copies=Copies(mention=0))
    await inbox.wait_for(lambda: inbox.messages)
    await adapter.stop()


async def test_a_workspace_that_cannot_be_reached_does_not_end_the_process(inbox: Inbox) -> None:
    adapter = SlackAdapter("xoxb-1", "xapp-1", "http://127.0.0.1:9/api/")
    await adapter.start(inbox.accept)
    assert not adapter.connected
    await adapter.stop()


async def test_a_proxy_is_not_used_for_this_machine(
    server: SlackServer, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    adapter = build_adapter(server)
    await adapter.start(inbox.accept)
    assert adapter.connected
    await both_open(server)
    await server.disconnect(grace=0.0)
    await server.wait_until(lambda: len(server.calls_to("apps.connections.open")) >= 4)
    await wait_connected(adapter)
    await adapter.stop()


# -- the self-check --------------------------------------------------------------------------------


async def test_the_check_finds_nothing_where_all_is_well(server: SlackServer) -> None:
    adapter = build_adapter(server)
    assert await adapter.check() == ()
    await adapter.stop()


async def test_the_check_names_each_missing_scope_and_its_reason(server: SlackServer) -> None:
    server.scopes = tuple(s for s in server.scopes or () if s not in ("users:read", "im:history"))
    adapter = build_adapter(server)
    problems = await adapter.check()
    assert {p.what.split(" (")[0] for p in problems} == {
        "slack: the scope users:read is missing",
        "slack: the scope im:history is missing",
    }
    assert all("Reinstall" in p.fix for p in problems)
    await adapter.stop()


async def test_the_check_sees_swapped_tokens(server: SlackServer) -> None:
    adapter = SlackAdapter(server.app_token, server.bot_token, server.base_url)
    problems = await adapter.check()
    assert any("bot_token is an app-level token" in p.what for p in problems)
    assert not any(server.bot_token in p.what + p.fix or server.app_token in p.what + p.fix for p in problems)
    assert len([p for p in problems if p.fatal]) == 4
    await adapter.stop()


async def test_the_check_tells_an_unreachable_workspace_from_a_refused_token() -> None:
    adapter = SlackAdapter("xoxb-1", "xapp-1", "http://127.0.0.1:9/api/")
    problems = await adapter.check()
    assert problems
    assert not any(p.fatal for p in problems)
    await adapter.stop()
