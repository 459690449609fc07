"""One process from start to stop: it tells the truth about itself, and stops whole."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import aiohttp
import pytest

from adapters.chat import Accept, AdapterError, Delivery, Message, Reply
from agent_core.errors import ConfigError
from agent_core.llm.tokens import TokenCounter, load_counter
from bot.app import App, open_app
from bot.cli.local import open_thread
from bot.cli.serve import serve
from bot.http import HttpServer
from bot.settings import Settings, load_settings
from bot.storage.base import Claim, RunRow
from tests.unit.bot.recording import MemoryChat, message


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "hermod.toml"
    path.write_text(f'[storage]\nurl = "sqlite:///{tmp_path}/hermod.db"\n[http]\nport = 0\n')
    return load_settings(path, {})


class Connection(MemoryChat):
    """A platform that has to be closed after use, and can be told to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = False
        self.opened = False
        self.start_error: Exception | None = None
        self.wind_down_error: Exception | None = None
        self.stop_error: Exception | None = None
        self.starting = asyncio.Event()
        self.hangs = False
        self.posting = asyncio.Event()
        self.winding_down = asyncio.Event()
        self.posted_over: list[bool] = []  # was it open at each post?

    async def start(self, accept: Accept) -> None:
        self.opened = True
        self.starting.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.start_error is not None:
            raise self.start_error
        self.accept = accept
        self.connected = True

    async def wind_down(self) -> None:
        self.connected = False
        self.winding_down.set()
        if self.wind_down_error is not None:
            raise self.wind_down_error

    async def stop(self) -> None:
        self.opened = self.connected = False
        if self.stop_error is not None:
            raise self.stop_error

    async def post(self, reply: Reply) -> Delivery:
        self.posting.set()
        await self.winding_down.wait()
        self.posted_over.append(self.opened)
        return await super().post(reply)


@asynccontextmanager
async def opened(settings: Settings, chat: Connection) -> AsyncIterator[App]:
    async with open_app(settings, {}, adapters={"memory": chat}, prefixes=["memory:"]) as app:
        yield app


def question(text: str = "what is 17 * 23?") -> Message:
    return message(text)


async def test_answers_are_posted_over_open_connections_while_it_stops_and_all_is_closed_after_them(
    settings: Settings,
) -> None:
    chat = Connection()
    async with opened(settings, chat) as app:
        await app.start()
        await chat.accept(question())
        await chat.posting.wait()
        await app.stop(10)
    assert ["391" in post.text for post in chat.posts] == [True]
    assert chat.posted_over == [True]
    assert not chat.opened


@pytest.mark.parametrize("fails", ["wind_down_error", "stop_error"])
async def test_an_adapter_that_fails_to_stop_keeps_nothing_else_from_stopping(settings: Settings, fails: str) -> None:
    chat = Connection()
    setattr(chat, fails, AdapterError("the connection is in a strange state"))
    async with opened(settings, chat) as app:
        await app.start()
        await chat.accept(question())
        await chat.posting.wait()
        await app.stop(10)
        assert not app.alive
        assert app.dispatcher.active == 0
    assert len(chat.posts) == 1
    assert not chat.opened


async def test_a_dispatcher_that_dies_ends_the_process_with_its_reason(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Connection()

    async def broken(*args: object, **kwargs: object) -> Claim | None:
        raise RuntimeError("a row that nobody expected")

    async with opened(settings, chat) as app:
        monkeypatch.setattr(app.store, "claim_thread", broken)
        with pytest.raises(RuntimeError, match="nobody expected"):
            await asyncio.wait_for(serve(app, settings, asyncio.Event()), 30)
        assert not app.alive
        assert not chat.opened


async def test_health_says_that_the_dispatcher_is_not_running_before_and_after_it_is(settings: Settings) -> None:
    chat = Connection()
    async with opened(settings, chat) as app, aiohttp.ClientSession() as http:
        server = HttpServer(
            host="127.0.0.1",
            port=0,
            store=app.store,
            adapters=app.adapters,
            alive=lambda: app.alive,
            metrics=app.metrics,
        )
        await server.start()
        seen = []
        for step in (None, app.start(), app.stop(1)):
            if step is not None:
                await step
            async with http.get(f"http://127.0.0.1:{server.port}/healthz") as answer:
                seen.append((answer.status, (await answer.json())["problem"]))
        await server.stop()
    assert seen == [
        (503, "the dispatcher is not running"),
        (200, ""),
        (503, "the dispatcher is not running"),
    ]


async def test_metrics_without_storage_leave_the_gauges_out_instead_of_failing(settings: Settings) -> None:
    chat = Connection()
    async with opened(settings, chat) as app, aiohttp.ClientSession() as http:
        server = HttpServer(
            host="127.0.0.1", port=0, store=app.store, adapters=app.adapters, alive=lambda: True, metrics=app.metrics
        )
        await server.start()
        await app.store.close()
        async with http.get(f"http://127.0.0.1:{server.port}/metrics") as answer:
            status, text = answer.status, await answer.text()
        async with http.get(f"http://127.0.0.1:{server.port}/readyz") as answer:
            ready = answer.status
        await server.stop()
        await app.stop(0)
    assert (status, ready) == (200, 503)
    assert "hermod_inbound_total" in text
    assert "hermod_threads" not in text


async def test_a_stop_while_it_connects_ends_it_without_a_task_left_behind(settings: Settings) -> None:
    chat = Connection()
    chat.hangs = True
    stop = asyncio.Event()
    async with opened(settings, chat) as app:
        before = asyncio.all_tasks()
        serving = asyncio.create_task(serve(app, settings, stop))
        await chat.starting.wait()
        stop.set()
        stop.set()  # told twice
        await asyncio.wait_for(serving, 30)
        left = {task for task in asyncio.all_tasks() - before - {asyncio.current_task()} if not task.done()}
    assert not chat.opened
    assert left == set()


async def test_a_platform_that_refuses_the_tokens_ends_the_start_with_its_own_error(settings: Settings) -> None:
    chat = Connection()
    chat.start_error = AdapterError("slack: bot_token was not accepted")
    async with opened(settings, chat) as app:
        with pytest.raises(AdapterError, match="bot_token was not accepted"):
            await asyncio.wait_for(serve(app, settings, asyncio.Event()), 30)
    assert not chat.opened


async def test_a_port_that_is_taken_is_a_mistake_in_the_settings_with_its_remedy(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = settings.model_copy(update={"http": settings.http.model_copy(update={"port": port})})
        async with opened(settings, Connection()) as app:
            with pytest.raises(ConfigError, match=rf"port {port} .*\[http\]"):
                await asyncio.wait_for(serve(app, settings, asyncio.Event()), 30)


async def test_a_question_that_is_interrupted_while_the_counter_loads_does_not_spoil_the_next(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def load_slowly(model: str) -> TokenCounter:
        go_on.wait(30)
        return load_counter(model)

    monkeypatch.setattr("bot.app.load_counter", load_slowly)
    async with open_thread(settings, channel="chat", thread="main") as local:
        begun, begin_run = asyncio.Event(), local.app.store.begin_run

        async def tell(claim: Claim, run: RunRow, item_ids: Sequence[int]) -> None:
            await begin_run(claim, run, item_ids)
            begun.set()

        monkeypatch.setattr(local.app.store, "begin_run", tell)
        first = asyncio.create_task(local.ask("what is 1 + 1?"))
        await asyncio.wait_for(begun.wait(), 30)
        first.cancel()
        await asyncio.wait({first})
        go_on.set()
        with local.app.session.stopping(local.thread.key):
            await local.app.dispatcher.work_all()
        async with asyncio.timeout(30):
            answer = await local.ask("what is 17 * 23?")
    assert "391" in answer.text


async def test_two_local_threads_leave_each_other_alone_also_when_one_name_begins_with_the_other(
    settings: Settings,
) -> None:
    async with (
        open_thread(settings, channel="chat", thread="main") as first,
        open_thread(settings, channel="chat", thread="main2") as second,
    ):
        await second.app.inbox.accept(
            Message(
                thread=second.thread,
                id="1",
                author=message("").author,
                text="what is 17 * 23?",
                mentioned=True,
                sent_at=datetime.now().astimezone(),
            )
        )
        await first.app.dispatcher.work_all()
        assert (await second.app.store.count_rows()).inbox_open == 1
        assert "4" in (await first.ask("what is 2 + 2?")).text
        await second.app.dispatcher.work_all()
        rows = await second.app.store.load_outbox(second.thread.key)
    assert ["391" in row.body for row in rows] == [True]


async def test_a_platform_that_hangs_while_it_connects_does_not_keep_another_from_answering(settings: Settings) -> None:
    slow, chat = Connection(), Connection()
    slow.hangs = True
    async with open_app(settings, {}, adapters={"slow": slow, "memory": chat}, prefixes=["slow:", "memory:"]) as app:
        starting = asyncio.create_task(app.start())
        await asyncio.wait_for(chat.starting.wait(), 30)
        await slow.starting.wait()
        await chat.accept(question())
        await asyncio.wait_for(chat.posting.wait(), 30)
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await app.stop(10)
    assert ["391" in post.text for post in chat.posts] == [True]


async def test_a_platform_that_refuses_ends_the_start_of_the_others_at_once(settings: Settings) -> None:
    slow, refused = Connection(), Connection()
    slow.hangs = True
    refused.start_error = AdapterError("the token was not accepted")
    async with open_app(settings, {}, adapters={"slow": slow, "memory": refused}, prefixes=["memory:"]) as app:
        with pytest.raises(AdapterError, match="not accepted"):
            await asyncio.wait_for(app.start(), 30)
        await app.stop(10)
    assert not slow.opened
