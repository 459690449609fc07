"""One message is one row, however often and however it is delivered: the adapter with the real inbox and store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_core.context import NoRedactor, SystemClock
from bot.inbox import Inbox
from bot.storage import open_store
from bot.storage.base import Store
from tests.integration.slack.conftest import Inbox as Desk
from tests.integration.slack.conftest import all_acknowledged, running
from tests.servers.slack import Copies, SlackServer

THREAD = "slack:T0FAKE/C1OPS/"


@pytest.fixture(params=["socket", "http"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'rows.db'}")
    await store.open()
    yield store
    await store.close()


class Rows(Desk):
    """Hermod's own inbox behind the adapter."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.inbox = Inbox(store=store, clock=SystemClock(), redactor=NoRedactor(), queue_limit=50, wake=lambda: None)
        self.accept = self.inbox.accept  # type: ignore[method-assign]


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


@pytest.mark.parametrize(
    "copies",
    [
        Copies(mention=m, message=n, mention_first=f, same_envelope=e)
        for m, n, f, e in itertools.product((0, 1, 3), (0, 1, 3), (True, False), (True, False))
        if m + n and not (f and not m)
    ],
)
async def test_b001_b002_b004_every_delivery_of_a_mention_is_one_row(
    server: SlackServer, store: Store, rows: Rows, mode: str, copies: Copies
) -> None:
    async with running(server, rows, mode=mode):
        ts = await server.mention("hello", copies=copies)
        await all_acknowledged(server, copies.mention + copies.message)
    (row,) = await store.load_open(f"{THREAD}{ts}")
    assert '"text":"hello"' in row.payload
    assert rows.inbox.accepted["new"] == 1


@pytest.mark.parametrize("order", list(itertools.permutations(["message", "mention", "edited mention"])))
async def test_a_message_that_did_not_say_it_mentions_us_counts_when_its_twin_does(
    server: SlackServer, store: Store, rows: Rows, mode: str, order: tuple[str, ...]
) -> None:
    """Where the mention is not in the words (a group that we are in), only ``app_mention`` tells."""
    said: dict[str, object] = {"user": "U1ALICE", "text": "<!subteam^S1> hello", "channel": "C1OPS", "ts": "1000.1"}
    events: dict[str, dict[str, object]] = {
        "message": said | {"type": "message"},
        "mention": said | {"type": "app_mention"},
        "edited mention": said | {"type": "app_mention", "edited": {"user": "U1ALICE", "ts": "1000.5"}},
    }
    async with running(server, rows, mode=mode):
        for n, kind in enumerate(order):
            await server.emit(events[kind])
            await all_acknowledged(server, n + 1)
    (row,) = await store.load_open(f"{THREAD}1000.1")
    assert '"mentioned":true' in row.payload


async def test_b003_a_direct_message_that_comes_as_a_mention_too_is_one_row(
    server: SlackServer, store: Store, rows: Rows, mode: str
) -> None:
    said = {"user": "U1ALICE", "text": "hi", "channel": "D1ALICE", "ts": "1000.1"}
    async with running(server, rows, mode=mode):
        await server.emit(said | {"type": "message", "channel_type": "im"}, channel="D1ALICE")
        await server.emit(said | {"type": "app_mention"}, channel="D1ALICE")
        await all_acknowledged(server, 2)
    assert len(await store.load_open("slack:T0FAKE/D1ALICE/1000.1")) == 1


async def test_b011_a_twin_without_ts_is_the_same_row(server: SlackServer, store: Store, rows: Rows, mode: str) -> None:
    said = {"user": "U1ALICE", "text": "<@U0BOT> hi", "channel": "C1OPS"}
    async with running(server, rows, mode=mode):
        await server.emit(said | {"type": "message", "ts": "1000.1"})
        await server.emit(said | {"type": "app_mention", "event_ts": "1000.1"})
        await all_acknowledged(server, 2)
    assert len(await store.load_open(f"{THREAD}1000.1")) == 1


async def test_b009_help_then_the_forgotten_mention_then_a_typing_error_is_one_row(
    server: SlackServer, store: Store, rows: Rows, mode: str
) -> None:
    async with running(server, rows, mode=mode):
        ts = await server.say("help")
        await server.edit(ts, "help <@U0BOT>", mention=True)
        await server.edit(ts, "help me <@U0BOT>", mention=True)
        await server.edit(ts, "help me")
        await server.edit(ts, "help me <@U0BOT>", mention=True)  # taken away, and put in again
        await server.unfurl(ts)
        await all_acknowledged(server, 9)
    assert len(await store.load_open(f"{THREAD}{ts}")) == 1


async def test_b012_what_was_accepted_before_a_restart_is_not_accepted_again(
    server: SlackServer, store: Store, rows: Rows, mode: str
) -> None:
    async with running(server, rows, mode=mode):
        ts = await server.mention("hello", copies=Copies(mention=0))
        await all_acknowledged(server, 1)
    again = Rows(store)
    async with running(server, again, mode=mode):
        await server.redeliver(str(server.deliveries[0].body["event_id"]))
    assert again.inbox.accepted["duplicate"] == 1
    assert len(await store.load_open(f"{THREAD}{ts}")) == 1


async def test_b022_mentions_at_top_level_have_a_thread_each(
    server: SlackServer, store: Store, rows: Rows, mode: str
) -> None:
    async with running(server, rows, mode=mode):
        one, two = await server.mention("first secret"), await server.mention("second")
        await all_acknowledged(server, 4)
    (first,) = await store.load_open(f"{THREAD}{one}")
    (second,) = await store.load_open(f"{THREAD}{two}")
    assert "first secret" in first.payload
    assert "first secret" not in second.payload


async def test_b025_a_direct_message_without_a_thread_opens_one_at_itself(
    server: SlackServer, store: Store, rows: Rows, mode: str
) -> None:
    said = {"type": "message", "user": "U1ALICE", "text": "hi", "channel": "D1ALICE", "channel_type": "im"}
    async with running(server, rows, mode=mode):
        await server.emit(said | {"ts": "1000.1", "thread_ts": ""}, channel="D1ALICE")
        await all_acknowledged(server, 1)
    assert len(await store.load_open("slack:T0FAKE/D1ALICE/1000.1")) == 1


async def test_a_command_and_a_button_are_one_row_each_however_often_they_come(
    server: SlackServer, store: Store, rows: Rows, mode: str
) -> None:
    root = await server.say("root")
    button = {"type": "button", "action_id": "approve", "value": "ask-1", "text": {"type": "plain_text", "text": "Yes"}}
    ts = await server.bot_say(root, "sure?", blocks=[{"type": "actions", "elements": [button]}])
    async with running(server, rows, mode=mode):
        await server.slash("/hermod", "help")
        await server.click(ts, "approve")
        for done in [d for d in server.deliveries if d.kind != "events_api"]:
            await server._deliver(done.kind, done.body, envelope_id=done.envelope_id)
    assert rows.inbox.accepted["new"] == 2
    assert rows.inbox.accepted["duplicate"] == 2
