"""A thread in this terminal: one question in, one answer out, through the same way as any chat message."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.chat import Author, Message, Reply, ThreadRef
from adapters.terminal import TerminalAdapter
from bot.app import App, open_app
from bot.session import EventTap
from bot.settings import Settings
from bot.storage.base import OutboxItem, RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswer:
    """What became of one question. ``run`` is None only when the queue of the thread was full."""

    text: str
    run: RunRow | None


class LocalThread:
    """Asks in one thread, one question at a time. Made by ``open_thread``."""

    def __init__(self, app: App, thread: ThreadRef) -> None:
        self.app = app
        self.thread = thread

    async def ask(self, text: str) -> LocalAnswer:
        """Ask, wait for the run to end, and return what was posted."""
        known = {row.id for row in await self.app.store.load_outbox(self.thread.key)}
        await self.app.inbox.accept(
            Message(
                thread=self.thread,
                id=secrets.token_hex(8),
                author=Author(id="local", name=_user_name()),
                text=text,
                mentioned=True,
                direct=True,
                sent_at=self.app.clock.now(),
            )
        )
        await self.app.dispatcher.work_all()
        rows = [row for row in await self.app.store.load_outbox(self.thread.key) if row.id not in known]
        runs = await self.app.store.list_runs(thread_key=self.thread.key, limit=1)
        return LocalAnswer(text="\n\n".join(_text_of(row) for row in rows), run=runs[0] if runs else None)

    async def stop(self) -> None:
        """End what the thread still has open; after an ``ask`` that was cancelled."""
        with self.app.session.stopping(self.thread.key):
            await self.app.dispatcher.work_all()


def _text_of(row: OutboxItem) -> str:
    from pydantic import TypeAdapter

    return TypeAdapter(Reply).validate_json(row.body).text


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "local"


@asynccontextmanager
async def open_thread(
    settings: Settings, *, channel: str, thread: str, tap: EventTap | None = None
) -> AsyncIterator[LocalThread]:
    """Open an app that serves one local thread and nothing else; a running ``hermod run`` is not disturbed."""
    place = ThreadRef(platform="terminal", workspace="local", channel=channel, thread=thread)
    adapter = TerminalAdapter(workspace=place.workspace, channel=place.channel)
    async with open_app(settings, os.environ, adapters={"terminal": adapter}, prefixes=[place.key], tap=tap) as app:
        await app.open_quietly()
        try:
            yield LocalThread(app, place)
        finally:
            await app.stop(0.0)
