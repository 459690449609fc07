"""A thread in this terminal: one question in, one answer out, through the same way as any chat message."""

from __future__ import annotations

import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from adapters.chat import Author, Reply, ThreadRef
from adapters.terminal import TerminalAdapter
from agent_core.runtime.events import EventSink
from bot.app import App, open_app
from bot.settings import Settings
from bot.storage.base import RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAnswer:
    """What became of one question. ``run`` is None only when the queue of the thread was full."""

    text: str
    run: RunRow | None


class LocalThread:
    """Asks in one thread, one question at a time. Made by ``open_thread``."""

    def __init__(self, app: App, adapter: TerminalAdapter, thread: ThreadRef, posted: list[Reply]) -> None:
        self.app = app
        self.thread = thread
        self._adapter = adapter
        self._posted = posted

    async def ask(self, text: str) -> LocalAnswer:
        """Ask, wait for the run to end, and return what was posted."""
        self._posted.clear()
        await self._adapter.submit(text, self.thread)
        await self.app.dispatcher.work_all()
        runs = await self.app.store.list_runs(thread_key=self.thread.key, limit=1)
        text = "\n\n".join(reply.text for reply in self._posted)
        return LocalAnswer(text=text, run=runs[0] if runs else None)

    async def stop(self) -> None:
        """End what the thread still has open; after an ``ask`` that was cancelled."""
        with self.app.session.stopping(self.thread.key):
            await self.app.dispatcher.work_all()


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "local"


@asynccontextmanager
async def open_thread(
    settings: Settings,
    *,
    channel: str,
    thread: str = "",
    tap: EventSink | None = None,
    output: TextIO | None = None,
    agent: str = "",
) -> AsyncIterator[LocalThread]:
    """Open an app that serves one local thread and nothing else; a running ``hermod run`` is not disturbed.

    Args:
        settings: loaded settings.
        channel, thread: name the thread; without ``thread`` it is a new one.
        tap: follows the runs' events.
        output: where replies are drawn as they are posted; None for callers that print them.
        agent: see ``open_app``.
    """
    posted: list[Reply] = []
    author = Author(id="local", name=_user_name())
    adapter = TerminalAdapter(channel=channel, output=output, author=author, on_post=posted.append, folder=Path.cwd())
    place = adapter.build_thread(thread)
    follow = None if tap is None else (lambda thread_key, event: tap(event))
    adapters, prefixes = {"terminal": adapter}, [place.key]
    async with open_app(settings, os.environ, adapters=adapters, prefixes=prefixes, tap=follow, agent=agent) as app:
        await app.open_quietly()
        await adapter.start(app.inbox.accept)
        try:
            yield LocalThread(app, adapter, place, posted)
        finally:
            await app.stop(0.0)
